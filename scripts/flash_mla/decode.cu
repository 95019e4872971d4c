// FlashMLA's dense decoding kernel for Hopper behind three C functions, so that it can be timed beside ours
// without an extension module for one torch and one Python. Its kernels are compiled as they are.

#include <cuda_runtime_api.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "params.h"
#include "sm90/decode/dense/splitkv_mla.h"
#include "smxx/decode/combine/combine.h"
#include "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h"

namespace {

constexpr int kHeadsPerBlock = 64, kDim = 512, kRow = 576, kPage = 64;

template <typename Element>
void run(DenseAttnDecodeParams& decode, CombineParams& combine) {
  sm90::run_flash_splitkv_mla_kernel<Element>(decode);
  smxx::decode::run_flash_mla_combine_kernel<Element>(combine);
}

}  // namespace

extern "C" {

// How many parts the work of all sequences is cut into: one a multiprocessor.
int mla_parts(int multiprocessors, int heads) {
  return std::max(multiprocessors / ((heads + kHeadsPerBlock - 1) / kHeadsPerBlock), 1);
}

// Fills `plan` (parts x 8 int32) and `splits` (batch + 1 int32) from the lengths.
void mla_plan(int batch, int* lengths, void* plan, int* splits, int parts, void* stream) {
  GetDecodeSchedMetaParams params = {batch, 1, 64, 5, -1, -1, nullptr, nullptr, lengths,
                                     static_cast<DecodingSchedMeta*>(plan), splits, parts,
                                     static_cast<cudaStream_t>(stream)};
  smxx::decode::run_get_decoding_sched_meta_kernel(params);
}

// One query a head: q (batch, heads, 576), cache (pages, 64, 576), out (batch, heads, 512), all packed; the `*_accum`
// hold batch + parts partial results in float32.
void mla_run(int is_bfloat16, int batch, int heads, int pages, int pages_per_sequence, float scale, void* q, void* cache,
             void* out, float* lse, int* table, int* lengths, void* plan, int* splits, int parts, float* lse_accum,
             float* out_accum, void* stream) {
  DenseAttnDecodeParams p{};
  p.b = batch;
  p.s_q = 1;
  p.q_seq_per_hk = p.h_q = p.q_head_per_hk = heads;
  p.h_k = 1;
  p.d = kRow;
  p.d_v = kDim;
  p.num_blocks = pages;
  p.is_causal = false;
  p.scale_softmax = scale;
  p.scale_softmax_log2 = static_cast<float>(scale * M_LOG2E);
  p.q_ptr = q;
  p.k_ptr = cache;
  p.o_ptr = out;
  p.softmax_lse_ptr = lse;
  p.q_batch_stride = static_cast<int64_t>(heads) * kRow;
  p.q_row_stride = p.k_row_stride = p.k_head_stride = kRow;
  p.q_head_stride = kRow;
  p.k_batch_stride = static_cast<int64_t>(kPage) * kRow;
  p.o_batch_stride = p.o_head_stride = static_cast<int64_t>(heads) * kDim;
  p.o_row_stride = kDim;
  p.block_table = table;
  p.block_table_batch_stride = pages_per_sequence;
  p.page_block_size = kPage;
  p.seqlens_k_ptr = lengths;
  p.tile_scheduler_metadata_ptr = static_cast<DecodingSchedMeta*>(plan);
  p.num_sm_parts = parts;
  p.num_splits_ptr = splits;
  p.total_num_splits = batch + parts;
  p.softmax_lseaccum_ptr = lse_accum;
  p.oaccum_ptr = out_accum;
  p.stream = static_cast<cudaStream_t>(stream);
  const int row = heads * kDim;
  CombineParams c = {batch, 1,     heads,     kDim,  lse,   out, heads, heads, row,    row,   kDim,
                     lse_accum,    out_accum, heads, heads, row, row,   kDim,  p.tile_scheduler_metadata_ptr,
                     splits,       parts,     nullptr, p.stream};
  if (is_bfloat16) {
    run<cutlass::bfloat16_t>(p, c);
  } else {
    run<cutlass::half_t>(p, c);
  }
}

}  // extern "C"

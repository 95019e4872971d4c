#!/usr/bin/env bash
# Builds FlashMLA's dense decoding for sm90 from a checkout of it, as a `flash_mla` package for `tilehal bench mla`.
#   scripts/flash_mla/build.sh CHECKOUT OUT       then PYTHONPATH=OUT tilehal bench mla
# CHECKOUT: deepseek-ai/FlashMLA; OUT/flash_mla is written. Needs nvcc 12.8 or newer; takes ten minutes on one core.
# CUTLASS's headers are those of the tilelang wheel. No GPU, no torch with CUDA.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
checkout="$(cd "${1:?the checkout of FlashMLA}" && pwd)/csrc"
mkdir -p "${2:?the folder to write flash_mla into}/flash_mla"
out="$(cd "$2" && pwd)/flash_mla"
python="${PYTHON:-$here/../../.venv/bin/python}"
tilelang="$("$python" -c 'import importlib.util as u; print(u.find_spec("tilelang").submodule_search_locations[0])')"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
flags=(
  -O3 -std=c++20 -DNDEBUG -D_USE_MATH_DEFINES -U__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__
  -U__CUDA_NO_HALF2_OPERATORS__ -U__CUDA_NO_BFLOAT16_CONVERSIONS__ --expt-relaxed-constexpr --expt-extended-lambda
  --use_fast_math -gencode arch=compute_90a,code=sm_90a -Xcompiler -fPIC -Wno-deprecated-declarations
  -I"$checkout" -I"$checkout/kerutils/include" -I"$checkout/sm90" -I"$tilelang/3rdparty/cutlass/include"
)
for source in "$checkout"/smxx/decode/{get_decoding_sched_meta/get_decoding_sched_meta,combine/combine}.cu \
  "$checkout"/sm90/decode/dense/instantiations/{fp16,bf16}.cu "$here/decode.cu"; do
  echo "compiling $(basename "$source") ..."
  nvcc "${flags[@]}" -c "$source" -o "$work/$(basename "$source" .cu).o"
done
nvcc -shared -o "$out/libdecode.so" "$work"/*.o
revision="$(git -C "$checkout" rev-parse --short HEAD 2>/dev/null || echo unknown)"
sed "s/^__version__ = .*/__version__ = \"$revision\"/" "$here/package.py" > "$out/__init__.py"
echo "wrote $out"

// The calling convention of apache-tvm-ffi, in C: arguments are read from their slots, tensors by pointer.
#include <tvm/ffi/c_api.h>

#define TILE_EXPORT extern "C" __attribute__((visibility("default")))

#ifndef __APPLE__
// The process's TVM-FFI comes first. Without one (an exported kernel) the entry below is not called at all.
extern "C" __attribute__((weak, visibility("default"))) void TVMFFIErrorSetRaisedFromCStr(const char*, const char*) {}
#endif

namespace tile {

inline int raise_error(const char* kind, const char* message) {
    TVMFFIErrorSetRaisedFromCStr(kind, message);
    return -1;
}

// The memory of a tensor argument, never copied; null when the argument is something else.
inline const DLTensor* tensor_of(const TVMFFIAny& argument) {
    if (argument.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(argument.v_ptr);
    if (argument.type_index == kTVMFFITensor) return reinterpret_cast<const DLTensor*>(argument.v_obj + 1);
    return nullptr;
}

inline bool is_tensor(const TVMFFIAny& argument) { return tensor_of(argument) != nullptr; }

template <class T>
inline T* data_of(const TVMFFIAny& argument) {
    const DLTensor* tensor = tensor_of(argument);
    return tensor == nullptr ? nullptr : reinterpret_cast<T*>(static_cast<char*>(tensor->data) + tensor->byte_offset);
}

// A number argument; Python's int, float and bool arrive in slots of their own.
template <class T>
inline T number_of(const TVMFFIAny& argument) {
    if (argument.type_index == kTVMFFIFloat) return convert<T>(argument.v_float64);
    if (argument.type_index == kTVMFFIBool) return convert<T>(int32_t(argument.v_int64 != 0));
    return convert<T>(argument.v_int64);
}

// Whether the argument is a number that T can hold.
template <class T>
inline bool is_number(const TVMFFIAny& argument) {
    if (argument.type_index == kTVMFFIInt) {
        if constexpr (is_integer<T>) return int64_t(T(argument.v_int64)) == argument.v_int64;
        return true;
    }
    return argument.type_index == kTVMFFIFloat || argument.type_index == kTVMFFIBool;
}

}  // namespace tile

// pool() gives this library's parallel loop as a pointer; pool(pointer, threads) makes it use that one.
TILE_EXPORT int __tvm_ffi_tilehal_pool_1(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
    if (count == 2) {
        if (arguments[0].v_ptr != nullptr) tile::pool_hook.run = reinterpret_cast<tile::ParallelFor>(arguments[0].v_ptr);
        tile::pool_hook.threads = int(arguments[1].v_int64);
    }
    result->type_index = kTVMFFIOpaquePtr;
    result->zero_padding = 0;
    result->v_ptr = reinterpret_cast<void*>(tile::pool_hook.run);
    return 0;
}

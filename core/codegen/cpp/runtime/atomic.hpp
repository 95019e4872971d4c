// Atomic read-modify-writes of one element. All are sequentially consistent, which is at least what any kernel asks for.
// Types without an instruction of their own (floats) are replaced as bits until nobody interfered.

namespace tile {

template <class T, class Update>
inline T atomic_update(T* target, Update update) {
    using Bits = typename bits_of<sizeof(T)>::type;
    Bits* bits = reinterpret_cast<Bits*>(target);
    Bits old = __atomic_load_n(bits, __ATOMIC_SEQ_CST);
    for (;;) {
        const Bits wanted = bits_as<Bits>(update(bits_as<T>(old)));
        if (__atomic_compare_exchange_n(bits, &old, wanted, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            return bits_as<T>(old);
        }
    }
}

// Each returns the old value.
template <class T>
inline T atomic_add(T* target, T value) {
    if constexpr (is_integer<T>) {
        return __atomic_fetch_add(target, value, __ATOMIC_SEQ_CST);
    } else {
        return atomic_update(target, [value](T old) { return T(old + value); });
    }
}
template <class T>
inline T atomic_max(T* target, T value) {
    return atomic_update(target, [value](T old) { return max<T>(old, value); });
}
template <class T>
inline T atomic_min(T* target, T value) {
    return atomic_update(target, [value](T old) { return min<T>(old, value); });
}
template <class T>
inline T atomic_or(T* target, T value) {
    return __atomic_fetch_or(target, value, __ATOMIC_SEQ_CST);
}
template <class T>
inline T atomic_load(const T* source) {
    using Bits = typename bits_of<sizeof(T)>::type;
    return bits_as<T>(__atomic_load_n(reinterpret_cast<const Bits*>(source), __ATOMIC_SEQ_CST));
}
template <class T>
inline T atomic_store(T* target, T value) {
    using Bits = typename bits_of<sizeof(T)>::type;
    return bits_as<T>(__atomic_exchange_n(reinterpret_cast<Bits*>(target), bits_as<Bits>(value), __ATOMIC_SEQ_CST));
}

}  // namespace tile

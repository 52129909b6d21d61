// A plain read: the sum of n numbers, 4 registers of them at a time, asked for 2 KiB ahead, in as many threads as are given.
#include <cstdint>
#include <cstring>

typedef float vec __attribute__((vector_size(64)));

extern "C" double read_all(const float *p, int64_t n, int64_t threads) {
    constexpr int64_t BLOCK = 64;  // floats
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        vec sum[4] = {};
#pragma omp for schedule(static) nowait
        for (int64_t block = 0; block < n / BLOCK; block++)
            for (int i = 0; i < 4; i++) {
                vec v;
                memcpy(&v, p + block * BLOCK + 16 * i, sizeof v);
                __builtin_prefetch(p + block * BLOCK + 16 * i + 512);
                sum[i] += v;
            }
        for (int i = 0; i < 16; i++) total += sum[0][i] + sum[1][i] + sum[2][i] + sum[3][i];
    }
    return total;
}

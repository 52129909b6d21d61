// One decode step of a Llama-style model. Each weight is read once, in the order in which it lies in memory: that is all its speed.
// Weights and cache are float or bfloat16; whatever is computed is float. lib/compiled.py fills the structs and calls step_float32
// or step_bfloat16. Shapes are those of lib: weights [rows, n], x [batch, n], cache [batch, n_kv_heads, slots, head_dim].
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX512F__)
constexpr int W = 16;  // floats in one vector register
#else
constexpr int W = 8;
#endif
typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));
typedef uint16_t half __attribute__((vector_size(2 * W)));
struct bf16 { uint16_t bits; };  // the upper half of a float

static inline float wide(float x) { return x; }
static inline float wide(bf16 x) { uint32_t u = uint32_t(x.bits) << 16; float f; memcpy(&f, &u, 4); return f; }
static inline void narrow(float x, float &to) { to = x; }
static inline void narrow(float x, bf16 &to) {  // to the nearest, ties to even
    uint32_t u; memcpy(&u, &x, 4); to.bits = (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static inline vec load(const float *p) { vec v; memcpy(&v, p, sizeof v); return v; }
static inline vec load(const bf16 *p) {
    half h; memcpy(&h, p, sizeof h);
    return (vec)(__builtin_convertvector(h, ivec) << 16);
}
static inline void store(float *p, vec v) { memcpy(p, &v, sizeof v); }
static inline float sum(vec v) {
    float f[W]; memcpy(f, &v, sizeof v);
    for (int n = W / 2; n; n /= 2)
        for (int i = 0; i < n; i++) f[i] += f[i + n];
    return f[0];
}
static inline vec exp(vec x) {  // e^x = 2^n e^r with |r| <= ln(2) / 2; relative error below 1e-6
    x = x < -87.0f ? vec{} - 87.0f : x > 88.0f ? vec{} + 88.0f : x;
    vec shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;  // 1.5 * 2^23: rounds to a whole number
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec y = vec{} + 1.0f / 720;
    for (float factorial : {120.0f, 24.0f, 6.0f, 2.0f, 1.0f, 1.0f}) y = y * r + 1.0f / factorial;
    return (vec)((ivec)y + (__builtin_convertvector(n, ivec) << 23));
}

// 2 W weights as two registers. A bfloat16 pair is one 32-bit word: its even members are shifted up, its odd ones lie right already.
static inline void load2(const float *p, vec &lo, vec &hi) { lo = load(p); hi = load(p + W); }
static inline void load2(const bf16 *p, vec &lo, vec &hi) {
    ivec pairs; memcpy(&pairs, p, sizeof pairs);
    lo = (vec)(pairs << 16); hi = (vec)(pairs & int32_t(0xffff0000));
}

// x [batch, n] in the order in which load2 gives the weights: for bfloat16 each 2 W numbers as the even ones, then the odd ones.
template <class T>
static const float *arrange(const float *x, long n, long batch, std::vector<float> &room) {
    if (sizeof(T) == sizeof(float)) return x;
    room.assign(x, x + n * batch);
    for (long r = 0; r < batch; r++)
        for (long k = r * n; k + 2 * W <= r * n + n; k += 2 * W)
            for (int i = 0; i < W; i++) { room[k + i] = x[k + 2 * i]; room[k + W + i] = x[k + 2 * i + 1]; }
    return room.data();
}

// out[r][b] = w[r] . x[b] for R rows and B columns, the sums kept in registers; x is arranged
template <int R, int B, class T>
static inline void dots(const T *w, const float *x, long n, float (&out)[R][B]) {
    vec acc[R][B] = {};
    long k = 0;
    for (; k + 2 * W <= n; k += 2 * W) {
        vec lo[R], hi[R];
        for (int r = 0; r < R; r++) {
            load2(w + r * n + k, lo[r], hi[r]);
            const T *later = w + (2 * R + r) * n + k;  // the block after the next: on its way before it is asked for
            __builtin_prefetch(later);
            if (sizeof(T) == sizeof(float)) __builtin_prefetch(later + W);
        }
        for (int b = 0; b < B; b++) {
            vec x0 = load(x + b * n + k), x1 = load(x + b * n + k + W);
            for (int r = 0; r < R; r++) acc[r][b] += lo[r] * x0;
            for (int r = 0; r < R; r++) acc[r][b] += hi[r] * x1;
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) {
            out[r][b] = sum(acc[r][b]);
            for (long j = k; j < n; j++) out[r][b] += wide(w[r * n + j]) * x[b * n + j];
        }
}

template <int R, int B, class T>
static inline void tile(const T *w, const float *x, float *y, long at, long rows, long n, bool add) {
    float out[R][B];
    dots<R, B>(w + at * n, x, n, out);
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) y[b * rows + at + r] = out[r][b] + (add ? y[b * rows + at + r] : 0);
}

// y [batch, rows] (+)= x [batch, n] w^T, w [rows, n]; the rows are shared among the threads, and nobody waits at the end.
template <class T>
static void matvec(const T *w, const float *x, float *y, long rows, long n, long batch, bool add = false) {
    constexpr int R = 4;
    static thread_local std::vector<float> room;
    x = arrange<T>(x, n, batch, room);
#pragma omp for schedule(static) nowait
    for (long block = 0; block < (rows + R - 1) / R; block++) {
        long at = block * R, b = 0;
        if (at + R <= rows) {
            for (; b + 4 <= batch; b += 4) tile<R, 4>(w, x + b * n, y + b * rows, at, rows, n, add);
            for (; b < batch; b++) tile<R, 1>(w, x + b * n, y + b * rows, at, rows, n, add);
        } else
            for (; at < rows; at++)
                for (b = 0; b < batch; b++) tile<1, 1>(w, x + b * n, y + b * rows, at, rows, n, add);
    }
}

// y = gain x / sqrt(mean(x^2) + eps)
template <class T>
static void rms_norm(const float *x, const T *gain, float *y, long n, float eps) {
    float squares = 0;
    for (long i = 0; i < n; i++) squares += x[i] * x[i];
    float scale = 1 / std::sqrt(squares / n + eps);
    for (long i = 0; i < n; i++) y[i] = wide(gain[i]) * x[i] * scale;
}

extern "C" {
struct Layer {  // the order of lib.compiled.Layer
    void *attn_norm, *wq, *wk, *wv, *wo, *q_norm, *k_norm, *ffn_norm, *w_gate, *w_up, *w_down;
    void *k, *v;                                            // this layer's cache, [batch, n_kv_heads, slots, head_dim]
    float *cos, *sin;                                       // the rows of this step's positions, or null: no rotation
    int64_t n_heads, n_kv_heads, head_dim, v_head_dim, d_ff, slots, half_turn, row_stride, adjacent;
    double scale;
};
struct Step {
    Layer *layers;
    void *emb, *norm, *head;
    int64_t *ids, *pad;                                     // [batch]; pad may be null
    float *logits;                                          // [batch, V]
    int64_t n_layers, batch, d, V, length, threads;         // length: tokens in the cache before this step
    double eps;
};
}

static void rotate(float *x, const float *cos, const float *sin, long half, bool adjacent) {
    for (long i = 0; i < half; i++) {
        float &a = x[adjacent ? 2 * i : i], &b = x[adjacent ? 2 * i + 1 : i + half], a0 = a;
        a = a0 * cos[i] - b * sin[i];
        b = a0 * sin[i] + b * cos[i];
    }
}

// One query head over the keys of its KV head. Slot s holds the newest column that is s modulo the number of slots: in a window
// layer the slots are a ring, elsewhere there is one for each column.
template <class T>
static void attend(const float *q, const T *k, const T *v, float *out, float *score, const Layer &l, long length, long pad) {
    long held = length + 1 > l.slots ? l.slots : length + 1, dh = l.head_dim, dv = l.v_head_dim;
    float best = -1e30f, total = 0;
    static thread_local std::vector<float> room;
    q = arrange<T>(q, dh, 1, room);
    for (long s = 0; s < held; s++) {
        long column = length - ((length - s) % l.slots + l.slots) % l.slots;
        float product[1][1];
        dots<1, 1>(k + s * dh, q, dh, product);
        score[s] = column < pad ? -1e30f : product[0][0] * float(l.scale);
        best = score[s] > best ? score[s] : best;
    }
    long s = 0;
    for (; s + W <= held; s += W) store(score + s, exp(load(score + s) - best));
    for (; s < held; s++) score[s] = std::exp(score[s] - best);
    for (s = 0; s < held; s++) total += score[s];
    for (long i = 0; i < dv; i++) out[i] = 0;
    for (s = 0; s < held; s++) {
        long i = 0;
        for (; i + W <= dv; i += W) store(out + i, load(out + i) + score[s] * load(v + s * dv + i));
        for (; i < dv; i++) out[i] += score[s] * wide(v[s * dv + i]);
    }
    for (long i = 0; i < dv; i++) out[i] /= total;
}

template <class T>
static void run(const Step &m) {
    long B = m.batch, d = m.d, widest = 0, keys = m.length + 1;
    for (long i = 0; i < m.n_layers; i++) {
        const Layer &l = m.layers[i];
        for (long n : {l.n_heads * l.head_dim, l.n_heads * l.v_head_dim, l.d_ff}) widest = n > widest ? n : widest;
    }
    std::vector<float> x(B * d), y(B * d), a(B * widest), b(B * widest), c(B * widest);
    for (long r = 0; r < B; r++)
        for (long i = 0; i < d; i++) x[r * d + i] = wide(((T *)m.emb)[m.ids[r] * d + i]);
#pragma omp parallel num_threads(m.threads)
    {
        std::vector<float> score(keys);
        for (long at = 0; at < m.n_layers; at++) {
            const Layer &l = m.layers[at];
            long h = l.n_heads, n_kv = l.n_kv_heads, dh = l.head_dim, dv = l.v_head_dim, group = h / n_kv;
            long slot = m.length % l.slots;
            T *ks = (T *)l.k, *vs = (T *)l.v;
#pragma omp for
            for (long r = 0; r < B; r++) rms_norm(&x[r * d], (T *)l.attn_norm, &y[r * d], d, m.eps);
            matvec((T *)l.wq, y.data(), a.data(), h * dh, d, B);
            matvec((T *)l.wk, y.data(), b.data(), n_kv * dh, d, B);
            matvec((T *)l.wv, y.data(), c.data(), n_kv * dv, d, B);
#pragma omp barrier
#pragma omp for
            for (long r = 0; r < B; r++) {  // norm and turn q and k; k and v go into the cache
                for (long j = 0; j < h + n_kv; j++) {
                    float *head = j < h ? &a[(r * h + j) * dh] : &b[(r * n_kv + j - h) * dh];
                    if (l.q_norm) rms_norm(head, (T *)(j < h ? l.q_norm : l.k_norm), head, dh, m.eps);
                    if (l.cos) rotate(head, l.cos + r * l.row_stride, l.sin + r * l.row_stride, l.half_turn, l.adjacent);
                }
                for (long j = 0; j < n_kv; j++) {
                    long row = (r * n_kv + j) * l.slots + slot;
                    for (long i = 0; i < dh; i++) narrow(b[(r * n_kv + j) * dh + i], ks[row * dh + i]);
                    for (long i = 0; i < dv; i++) narrow(c[(r * n_kv + j) * dv + i], vs[row * dv + i]);
                }
            }
#pragma omp for
            for (long j = 0; j < B * h; j++) {
                long r = j / h, kv = r * n_kv + j % h / group;
                const T *k = ks + kv * l.slots * dh, *v = vs + kv * l.slots * dv;
                attend(&a[j * dh], k, v, &b[j * dv], score.data(), l, m.length, m.pad ? m.pad[r] : 0);
            }
            matvec((T *)l.wo, b.data(), x.data(), d, h * dv, B, true);
#pragma omp barrier
#pragma omp for
            for (long r = 0; r < B; r++) rms_norm(&x[r * d], (T *)l.ffn_norm, &y[r * d], d, m.eps);
            matvec((T *)l.w_gate, y.data(), a.data(), l.d_ff, d, B);
            matvec((T *)l.w_up, y.data(), b.data(), l.d_ff, d, B);
#pragma omp barrier
#pragma omp for
            for (long i = 0; i < B * l.d_ff; i++) a[i] = a[i] / (1 + std::exp(-a[i])) * b[i];
            matvec((T *)l.w_down, a.data(), x.data(), d, l.d_ff, B, true);
#pragma omp barrier
        }
#pragma omp for
        for (long r = 0; r < B; r++) rms_norm(&x[r * d], (T *)m.norm, &y[r * d], d, m.eps);
        matvec((T *)m.head, y.data(), m.logits, m.V, d, B);
    }
}

extern "C" void step_float32(const Step *m) { run<float>(*m); }
extern "C" void step_bfloat16(const Step *m) { run<bf16>(*m); }
extern "C" int64_t size_of_layer() { return sizeof(Layer); }
extern "C" int64_t size_of_step() { return sizeof(Step); }

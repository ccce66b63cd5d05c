/* The product of each row of x with each row of weight, and a count of the calls. */

static long calls;

long own_calls(void) {
    return __atomic_load_n(&calls, __ATOMIC_RELAXED);
}

void own_product(const float *x, const float *weight, float *y, long rows, long columns,
                 long depth) {
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    for (long row = 0; row < rows; row++) {
        for (long column = 0; column < columns; column++) {
            float sum = 0;
            for (long k = 0; k < depth; k++)
                sum += x[row * depth + k] * weight[column * depth + k];
            y[row * columns + column] = sum;
        }
    }
}

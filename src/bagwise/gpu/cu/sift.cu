// Kernels of dense SIFT: each is launched by a function of bagwise/gpu/sift.py, which says what it computes.
// the image of a block is blockIdx.y, its pixels are spread over x
extern "C" __global__ void orient(const float* images, const long long* places, float* planes) {
    const long long* place = places + 3 * blockIdx.y;
    int height = place[1], width = place[2];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= height * width) return;
    int x = at % width, y = at / width;
    float shares[8] = {};
    if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
        const float* pixel = images + place[0] + at;
        float right = pixel[1] - pixel[-1], up = pixel[-width] - pixel[width];
        float across = fabsf(right), along = fabsf(up);
        float large = fmaxf(across, along), slope = fminf(across, along) / (large > 0 ? large : 1), s = slope * slope;
        float turn = slope * (1.0f + s * (-0.3333314528f + s * (0.1999355085f + s * (-0.1420889944f + s * (0.1065626393f
            + s * (-0.0752896400f + s * (0.0429096138f + s * (-0.0161657367f + s * 0.0028662257f))))))));
        turn *= 1.2732395447351628f;
        turn = along < across ? turn : 2 - turn;
        turn = right >= 0 ? turn : 4 - turn;
        turn = up >= 0 ? turn : 8 - turn;
        float norm = sqrtf(right * right + up * up);
        int whole = (int)turn;
        float share = norm * (turn - whole);
        for (int o = 0; o < 8; o++)
            shares[o] = o == (whole & 7) ? norm - share : o == ((whole + 1) & 7) ? share : 0;
    }
    float* out = planes + (place[0] + at) * 8;
    for (int o = 0; o < 8; o++) out[o] = shares[o];
}

// a block of 128 threads for each descriptor: cells down, cells to the right, directions
extern "C" __global__ void describe(const float* planes, const long long* places, const long long* image_of,
                                    const long long* rows, const long long* columns, const long long* firsts,
                                    const float* weights, int n_taps, float* out) {
    long long d = blockIdx.x;
    const long long* place = places + 3 * image_of[d];
    int height = place[1], width = place[2];
    int a = threadIdx.x / 32, b = threadIdx.x / 8 % 4, o = threadIdx.x % 8;
    int top = rows[d] + firsts[a], left = columns[d] + firsts[b];
    float total = 0;
    for (int s = 0; s < n_taps; s++) {
        int y = top + s;
        if (y < 0 || y >= height) continue;
        float line = 0;
        const float* row = planes + (place[0] + (long long)y * width) * 8 + o;
        for (int t = 0; t < n_taps; t++) {
            int x = left + t;
            if (x >= 0 && x < width) line += weights[b * n_taps + t] * row[x * 8];
        }
        total += weights[a * n_taps + s] * line;
    }
    out[d * 128 + threadIdx.x] = total;
}

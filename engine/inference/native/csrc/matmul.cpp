// The multiplication itself: walks panels and rows, with the kernels that this machine has.

#include "matmul_plain.h"

#ifdef FT_AVX512
#include "matmul_avx512.h"
#endif

namespace firsttoken {

void matmul_part(const PackedMatrix& matrix, const void* prepared, int32_t m, float* y, int32_t ldy,
                 int32_t n_begin, int32_t n_end, bool accumulate) {
    const uint8_t* data = static_cast<const uint8_t*>(matrix.data);
    const uint8_t* rows = static_cast<const uint8_t*>(prepared);
    for (int first = n_begin; first < n_end; first += kTile) {
        const uint8_t* panel = data + first / kTile * panel_bytes(matrix);
#ifdef FT_AVX512
        const bool last = first + kTile >= n_end;
        const uint8_t* next = last ? panel : panel + panel_bytes(matrix);
        avx512_panel(matrix, panel, next, rows, m, y, ldy, first, accumulate);
#else
        plain_panel(matrix, panel, rows, m, y, ldy, first, accumulate);
#endif
    }
}

#ifdef FT_AVX512
const char* matmul_path() { return "avx512"; }
#else
const char* matmul_path() { return "plain"; }
#endif

}  // namespace firsttoken

// The multiplication itself: walks panels and rows, with the kernels that this machine has.

#include "matmul_plain.h"

namespace firsttoken {

void matmul_part(const PackedMatrix& matrix, const void* prepared, int32_t m, float* y, int32_t ldy,
                 int32_t n_begin, int32_t n_end, bool accumulate) {
    const uint8_t* data = static_cast<const uint8_t*>(matrix.data);
    const uint8_t* rows = static_cast<const uint8_t*>(prepared);
    for (int first = n_begin; first < n_end; first += kTile) {
        const uint8_t* panel = data + first / kTile * panel_bytes(matrix);
        plain_panel(matrix, panel, rows, m, y, ldy, first, accumulate);
    }
}

const char* matmul_path() { return "plain"; }

}  // namespace firsttoken

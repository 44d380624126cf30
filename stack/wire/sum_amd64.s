#include "textflag.h"

// The sum of 64-bit words with carry, without a carry flag: keep F, the sum of the words modulo 2^64, and H, the sum of their
// high halves. Then the sum of the low halves is F - H<<32 modulo 2^64, and both sums of halves are exact for inputs below
// 2^32 words. Per 32 bytes: one load, one shift, two adds.

#define STEP(off, full, high, tmp) \
	VMOVDQU off(SI), tmp; \
	VPADDQ  tmp, full, full; \
	VPSRLQ  $32, tmp, tmp; \
	VPADDQ  tmp, high, high

#define COPYSTEP(off, full, high, tmp) \
	VMOVDQU off(SI), tmp; \
	VMOVDQU tmp, off(DI); \
	VPADDQ  tmp, full, full; \
	VPSRLQ  $32, tmp, tmp; \
	VPADDQ  tmp, high, high

#define CLEAR \
	VPXOR Y0, Y0, Y0; \
	VPXOR Y1, Y1, Y1; \
	VPXOR Y2, Y2, Y2; \
	VPXOR Y3, Y3, Y3; \
	VPXOR Y4, Y4, Y4; \
	VPXOR Y5, Y5, Y5; \
	VPXOR Y6, Y6, Y6; \
	VPXOR Y7, Y7, Y7

// REDUCE leaves the end-around sum of all lanes in AX: low halves and high halves are added apart, each below 2^64, then
// joined as lo + hi<<32 with carries.
#define REDUCE \
	VPADDQ  Y1, Y0, Y0; \
	VPADDQ  Y3, Y2, Y2; \
	VPADDQ  Y2, Y0, Y0; \
	VPADDQ  Y5, Y4, Y4; \
	VPADDQ  Y7, Y6, Y6; \
	VPADDQ  Y6, Y4, Y4; \
	VPSLLQ  $32, Y4, Y5; \
	VPSUBQ  Y5, Y0, Y0; \
	VEXTRACTI128 $1, Y0, X1; \
	VPADDQ  X1, X0, X0; \
	VPSRLDQ $8, X0, X1; \
	VPADDQ  X1, X0, X0; \
	VEXTRACTI128 $1, Y4, X5; \
	VPADDQ  X5, X4, X4; \
	VPSRLDQ $8, X4, X5; \
	VPADDQ  X5, X4, X4; \
	VMOVQ   X0, AX; \
	VMOVQ   X4, BX; \
	VZEROUPPER; \
	MOVQ    BX, DX; \
	SHLQ    $32, BX; \
	SHRQ    $32, DX; \
	ADDQ    BX, AX; \
	ADCQ    DX, AX; \
	ADCQ    $0, AX

// func sumVector(b []byte) uint64
TEXT ·sumVector(SB), NOSPLIT, $0-32
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), CX
	CLEAR

loop128:
	CMPQ CX, $128
	JB   tail
	STEP(0, Y0, Y4, Y8)
	STEP(32, Y1, Y5, Y9)
	STEP(64, Y2, Y6, Y10)
	STEP(96, Y3, Y7, Y11)
	ADDQ $128, SI
	SUBQ $128, CX
	JMP  loop128

tail:
	CMPQ CX, $32
	JB   done
	STEP(0, Y0, Y4, Y8)
	ADDQ $32, SI
	SUBQ $32, CX
	JMP  tail

done:
	REDUCE
	MOVQ AX, ret+24(FP)
	RET

// func sumCopyVector(dst, src []byte) uint64
TEXT ·sumCopyVector(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ src_base+24(FP), SI
	MOVQ src_len+32(FP), CX
	CLEAR

loop128:
	CMPQ CX, $128
	JB   tail
	COPYSTEP(0, Y0, Y4, Y8)
	COPYSTEP(32, Y1, Y5, Y9)
	COPYSTEP(64, Y2, Y6, Y10)
	COPYSTEP(96, Y3, Y7, Y11)
	ADDQ $128, SI
	ADDQ $128, DI
	SUBQ $128, CX
	JMP  loop128

tail:
	CMPQ CX, $32
	JB   done
	COPYSTEP(0, Y0, Y4, Y8)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $32, CX
	JMP  tail

done:
	REDUCE
	MOVQ AX, ret+48(FP)
	RET

package apps

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
)

// MaxContent is the largest size of generated content in bytes.
const MaxContent = math.MaxInt64

// Content is generated content: size bytes that follow from a seed. Any part of it can be had at once, at memory speed.
//
// Word i (8 bytes, little endian) is base[i mod 8192] xor mix(seed, i / 8192), where base is a fixed random block of 64 KiB: so
// each block of each seed differs from all others in every word, and a block that is lost, repeated or moved changes the hash.
type Content struct {
	seed uint64
	size int64
	off  int64
}

const blockWords = 8192

// base is splitmix64's output from seed 0.
var base = func() (b [blockWords]uint64) {
	for i := range b {
		b[i] = mix(uint64(i))
	}
	return b
}()

// mix is the (x+1)-th output of splitmix64 with seed 0 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	z := (x + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// ContentReader returns the content of the given seed and size, positioned at its beginning.
func ContentReader(seed uint64, size int64) *Content { return &Content{seed: seed, size: size} }

// ContentSHA256 returns the SHA-256 of the content in hexadecimal digits.
func ContentSHA256(seed uint64, size int64) string {
	h := sha256.New()
	_, _ = pump(h, ContentReader(seed, size)) // neither side fails
	return hex.EncodeToString(h.Sum(nil))
}

// Read implements io.Reader.
func (c *Content) Read(b []byte) (int, error) {
	n, err := c.ReadAt(b, c.off)
	c.off += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements io.ReaderAt.
func (c *Content) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("apps: negative offset")
	}
	if off >= c.size {
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var err error
	if rest := c.size - off; int64(len(b)) > rest {
		b, err = b[:rest], io.EOF
	}
	c.generate(b, uint64(off))
	return len(b), err
}

// Seek implements io.Seeker.
func (c *Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.off
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errors.New("apps: negative offset")
	}
	c.off = offset
	return offset, nil
}

// generate fills b with the content from off on.
func (c *Content) generate(b []byte, off uint64) {
	if skip := off % 8; skip != 0 { // the rest of a word
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], c.word(off/8))
		n := copy(b, w[skip:])
		b, off = b[n:], off+uint64(n)
	}
	for len(b) >= 8 {
		i := off / 8 % blockWords
		words := base[i:min(blockWords, i+uint64(len(b)/8))]
		xor(b, words, c.key(off/8/blockWords))
		b, off = b[len(words)*8:], off+uint64(len(words)*8)
	}
	if len(b) > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], c.word(off/8))
		copy(b, w[:])
	}
}

func (c *Content) word(i uint64) uint64 { return base[i%blockWords] ^ c.key(i/blockWords) }

func (c *Content) key(block uint64) uint64 { return mix(mix(c.seed) + block) }

// xor writes each word xor key to b, which has room for them.
func xor(b []byte, words []uint64, key uint64) {
	for len(words) >= 8 {
		w, d := words[:8:8], b[:64:64]
		binary.LittleEndian.PutUint64(d[0:], w[0]^key)
		binary.LittleEndian.PutUint64(d[8:], w[1]^key)
		binary.LittleEndian.PutUint64(d[16:], w[2]^key)
		binary.LittleEndian.PutUint64(d[24:], w[3]^key)
		binary.LittleEndian.PutUint64(d[32:], w[4]^key)
		binary.LittleEndian.PutUint64(d[40:], w[5]^key)
		binary.LittleEndian.PutUint64(d[48:], w[6]^key)
		binary.LittleEndian.PutUint64(d[56:], w[7]^key)
		words, b = words[8:], b[64:]
	}
	for i, w := range words {
		binary.LittleEndian.PutUint64(b[i*8:], w^key)
	}
}

// BLAKE3 (unkeyed, 32 bytes of output), written after the specification. The name of a content at the server is its
// BLAKE3 hash, so a browser can tell which files of a folder are there already.
//
// A message is cut into chunks of 1024 bytes; each gives a chaining value of eight words, and pairs of these are joined
// into a binary tree whose left subtrees are full. `#stack` holds the roots of the full subtrees so far, at most one for
// each bit of the number of chunks, so memory does not grow with the message.

const IV = Uint32Array.of(
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
);
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const ROUNDS = 7;
const BLOCK_BYTES = 64;
const CHUNK_BYTES = 1024;
const CHUNK_START = 1;
const CHUNK_END = 2;
const PARENT = 4;
const ROOT = 8;

// Which word of the block each step of each round takes.
const SCHEDULE = (() => {
  const schedule = new Uint8Array(ROUNDS * 16);
  let order = [...Array(16).keys()];
  for (let round = 0; round < ROUNDS; round++) {
    schedule.set(order, round * 16);
    order = PERMUTATION.map((index) => order[index]);
  }
  return schedule;
})();

// Signed words: additions then stay small integers for the compiler, and the bits are the same.
const state = new Int32Array(16);

function mix(a, b, c, d, x, y) {
  let va = state[a];
  let vb = state[b];
  let vc = state[c];
  let vd = state[d];
  va = (va + vb + x) | 0;
  vd ^= va;
  vd = (vd >>> 16) | (vd << 16);
  vc = (vc + vd) | 0;
  vb ^= vc;
  vb = (vb >>> 12) | (vb << 20);
  va = (va + vb + y) | 0;
  vd ^= va;
  vd = (vd >>> 8) | (vd << 24);
  vc = (vc + vd) | 0;
  vb ^= vc;
  vb = (vb >>> 7) | (vb << 25);
  state[a] = va;
  state[b] = vb;
  state[c] = vc;
  state[d] = vd;
}

// The compression function; the first eight words of its output replace `value`.
function compress(value, block, counter, length, flags) {
  state.set(value);
  state.set(IV.subarray(0, 4), 8);
  state[12] = counter >>> 0;
  state[13] = Math.floor(counter / 2 ** 32);
  state[14] = length;
  state[15] = flags;
  for (let at = 0; at < SCHEDULE.length; ) {
    mix(0, 4, 8, 12, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
    mix(1, 5, 9, 13, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
    mix(2, 6, 10, 14, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
    mix(3, 7, 11, 15, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
    mix(0, 5, 10, 15, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
    mix(1, 6, 11, 12, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
    mix(2, 7, 8, 13, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
    mix(3, 4, 9, 14, block[SCHEDULE[at++]], block[SCHEDULE[at++]]);
  }
  for (let index = 0; index < 8; index++) value[index] = state[index] ^ state[index + 8];
}

function join(left, right, flags) {
  const block = new Uint32Array(16);
  block.set(left);
  block.set(right, 8);
  const value = IV.slice();
  compress(value, block, 0, BLOCK_BYTES, PARENT | flags);
  return value;
}

export class Blake3 {
  #stack = [];
  #chunks = 0;
  #value = IV.slice();
  #block = new Uint8Array(BLOCK_BYTES);
  #words = new Uint32Array(16);
  #view = new DataView(this.#block.buffer);
  // Bytes that wait in `#block`, and whole blocks of this chunk that are done.
  #waiting = 0;
  #blocks = 0;

  update(bytes) {
    let at = 0;
    while (at < bytes.length) {
      // A block is compressed only when more follows: the last one has flags of its own.
      if (this.#waiting === BLOCK_BYTES) this.#endBlock();
      const count = Math.min(BLOCK_BYTES - this.#waiting, bytes.length - at);
      for (let index = 0; index < count; index++) this.#block[this.#waiting + index] = bytes[at + index];
      this.#waiting += count;
      at += count;
    }
    return this;
  }

  #endBlock() {
    if ((this.#blocks + 1) * BLOCK_BYTES === CHUNK_BYTES) {
      this.#compress(CHUNK_END);
      this.#endChunk();
    } else {
      this.#compress(0);
      this.#blocks += 1;
    }
    this.#waiting = 0;
  }

  #compress(flags) {
    const start = this.#blocks === 0 ? CHUNK_START : 0;
    for (let index = 0; index < 16; index++) this.#words[index] = this.#view.getUint32(index * 4, true);
    compress(this.#value, this.#words, this.#chunks, this.#waiting, flags | start);
  }

  // Joins the subtrees that this chunk completes: as many as its number ends with zero bits.
  #endChunk() {
    let value = this.#value;
    this.#chunks += 1;
    for (let count = this.#chunks; count % 2 === 0; count /= 2) value = join(this.#stack.pop(), value, 0);
    this.#stack.push(value);
    this.#value = IV.slice();
    this.#blocks = 0;
  }

  // The hash as 64 hexadecimal digits. Nothing may be added after it.
  hex() {
    this.#block.fill(0, this.#waiting);
    let left = this.#stack.length;
    this.#compress(CHUNK_END | (left === 0 ? ROOT : 0));
    let value = this.#value;
    while (left > 0) {
      left -= 1;
      value = join(this.#stack[left], value, left === 0 ? ROOT : 0);
    }
    const bytes = new DataView(new ArrayBuffer(32));
    value.forEach((word, index) => bytes.setUint32(index * 4, word, true));
    return [...new Uint8Array(bytes.buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }
}

// The hash of a file, read piece by piece. `seen` is told how many bytes of each piece were hashed.
export async function hashFile(file, seen = () => {}) {
  const PIECE_BYTES = 1024 * 1024;
  const hasher = new Blake3();
  for (let at = 0; at < file.size; at += PIECE_BYTES) {
    const piece = new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer());
    hasher.update(piece);
    seen(piece.length);
  }
  return hasher.hex();
}

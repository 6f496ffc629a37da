/** The wire format of protobuf. Safe 64-bit integers are numbers, others bigints; bytes are views of the input. */

import { ClientError } from '../errors.js'
import { integer } from '../json.js'

const VARINT = 0
const EIGHT = 1
const LENGTH = 2
const FOUR = 5

const TWO_32 = 2 ** 32

export class Reader {
  readonly #bytes: Buffer
  readonly #view: DataView
  readonly #end: number
  #at: number
  /** Wire type of the field that `next` found. */
  #type = VARINT

  constructor(bytes: Buffer, from = 0, end = bytes.length) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
    this.#at = from
    this.#end = end
  }

  /** The number of the next field; 0 at the end. */
  next(): number {
    if (this.#at >= this.#end) return 0
    const key = this.#small()
    this.#type = key & 7
    return key >>> 3
  }

  skip(): void {
    if (this.#type === VARINT) this.#pair()
    else
      this.#move(
        this.#type === EIGHT ? 8 : this.#type === FOUR ? 4 : this.#type === LENGTH ? this.#small() : this.#fail(),
      )
  }

  bool(): boolean {
    const [low, high] = this.#pair()
    return (low | high) !== 0
  }

  unsigned(): number | bigint {
    const [low, high] = this.#pair()
    return high < 2 ** 21 ? high * TWO_32 + low : (BigInt(high) << 32n) | BigInt(low)
  }

  signed(): number | bigint {
    const [low, high] = this.#pair()
    return integer(BigInt.asIntN(64, (BigInt(high) << 32n) | BigInt(low)))
  }

  /** Like `signed`, for small dimensions and counts. */
  dimension(): number {
    const first = this.#bytes[this.#at] ?? 0x80
    if (first < 0x80) {
      this.#at += 1
      return first
    }
    return Number(this.signed())
  }

  double(): number {
    return this.#view.getFloat64(this.#move(8), true)
  }

  float(): number {
    return this.#view.getFloat32(this.#move(4), true)
  }

  string(): string {
    const length = this.#small()
    const from = this.#move(length)
    return this.#bytes.toString('utf8', from, from + length)
  }

  bytes(): Uint8Array {
    const length = this.#small()
    return new Uint8Array(this.#bytes.buffer, this.#bytes.byteOffset + this.#move(length), length)
  }

  /** A nested message. */
  message(): Reader {
    const length = this.#small()
    const from = this.#move(length)
    return new Reader(this.#bytes, from, from + length)
  }

  /** Calls `one` for each element of a repeated number, packed or not. */
  each(one: (reader: Reader) => void): void {
    if (this.#type !== LENGTH) {
      one(this)
      return
    }
    const length = this.#small()
    const end = this.#at + length
    if (end > this.#end) this.#fail()
    while (this.#at < end) one(this)
  }

  /** Reads lengths and keys, which have 32 bits. */
  #small(): number {
    const first = this.#bytes[this.#at] ?? this.#fail()
    if (first < 0x80) {
      this.#at += 1
      return first
    }
    const [low, high] = this.#pair()
    return high === 0 ? low : this.#fail()
  }

  /** The lower and the upper half of a varint. */
  #pair(): [number, number] {
    let low = 0
    let high = 0
    for (let shift = 0; shift < 70; shift += 7) {
      if (this.#at >= this.#end) break
      const byte = this.#bytes[this.#at] ?? 0
      this.#at += 1
      const bits = byte & 0x7f
      if (shift < 28) low |= bits << shift
      else if (shift === 28) {
        low |= bits << 28
        high |= bits >>> 4
      } else high |= bits << (shift - 32)
      if (byte < 0x80) return [low >>> 0, high >>> 0]
    }
    return this.#fail()
  }

  /** Advances by this many bytes and returns their beginning. */
  #move(bytes: number): number {
    const from = this.#at
    if (from + bytes > this.#end) this.#fail()
    this.#at = from + bytes
    return from
  }

  #fail(): never {
    throw new ClientError(
      'PROTOCOL',
      `a message of ${this.#bytes.length} bytes is incomplete, or not a message of this protocol`,
    )
  }
}

const FIRST_BYTES = 256

export class Writer {
  #bytes = Buffer.allocUnsafe(FIRST_BYTES)
  #at = 0

  /** The written bytes, in a buffer that is valid until `clear`. */
  get done(): Buffer {
    return this.#bytes.subarray(0, this.#at)
  }

  get length(): number {
    return this.#at
  }

  clear(): this {
    this.#at = 0
    return this
  }

  /** Default values are omitted, as in proto3. */
  string(field: number, text: string): this {
    return text === '' ? this : this.requiredString(field, text)
  }

  requiredString(field: number, text: string): this {
    this.#key(field, LENGTH)
    const length = Buffer.byteLength(text)
    this.#varint(length)
    this.#room(length)
    this.#at += this.#bytes.write(text, this.#at, 'utf8')
    return this
  }

  bytes(field: number, bytes: Uint8Array): this {
    this.head(field, bytes.length)
    this.#room(bytes.length)
    this.#bytes.set(bytes, this.#at)
    this.#at += bytes.length
    return this
  }

  /** Writes the key and length of a field whose bytes the caller appends. */
  head(field: number, length: number): this {
    this.#key(field, LENGTH)
    this.#varint(length)
    return this
  }

  bool(field: number, value: boolean): this {
    this.#key(field, VARINT)
    this.#varint(value ? 1 : 0)
    return this
  }

  /** Writes a signed or unsigned integer; negative ones as 64 bits. */
  integer(field: number, value: number | bigint): this {
    this.#key(field, VARINT)
    this.#integer(value)
    return this
  }

  double(field: number, value: number): this {
    this.#key(field, EIGHT)
    this.#room(8)
    this.#at = this.#bytes.writeDoubleLE(value, this.#at)
    return this
  }

  /** A packed list of integers. */
  packed(field: number, values: readonly (number | bigint)[]): this {
    if (values.length === 0) return this
    const from = this.#open(field)
    for (const value of values) this.#integer(value)
    return this.#close(from)
  }

  /** A nested message. */
  message(field: number, write: (writer: this) => void): this {
    const from = this.#open(field)
    write(this)
    return this.#close(from)
  }

  /** Reserves one byte for the length, which suffices for most. */
  #open(field: number): number {
    this.#key(field, LENGTH)
    this.#room(1)
    this.#at += 1
    return this.#at
  }

  #close(from: number): this {
    const length = this.#at - from
    let more = 0
    for (let rest = length >>> 7; rest > 0; rest >>>= 7) more += 1
    if (more > 0) {
      this.#room(more)
      this.#bytes.copyWithin(from + more, from, this.#at)
    }
    this.#at = from - 1
    this.#varint(length)
    this.#at += length
    return this
  }

  #key(field: number, type: number): void {
    this.#varint((field << 3) | type)
  }

  #varint(value: number): void {
    this.#room(10)
    let rest = value
    while (rest >= 0x80) {
      this.#bytes[this.#at] = (rest % 0x80) | 0x80
      this.#at += 1
      rest = Math.floor(rest / 0x80)
    }
    this.#bytes[this.#at] = rest
    this.#at += 1
  }

  #integer(value: number | bigint): void {
    if (typeof value === 'number' && value >= 0) {
      this.#varint(value)
      return
    }
    this.#room(10)
    let rest = BigInt.asUintN(64, BigInt(value))
    while (rest >= 0x80n) {
      this.#bytes[this.#at] = Number(rest & 0x7fn) | 0x80
      this.#at += 1
      rest >>= 7n
    }
    this.#bytes[this.#at] = Number(rest)
    this.#at += 1
  }

  #room(bytes: number): void {
    if (this.#at + bytes <= this.#bytes.length) return
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#at + bytes))
    this.#bytes.copy(larger, 0, 0, this.#at)
    this.#bytes = larger
  }
}

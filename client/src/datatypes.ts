/** Datatypes of the protocol, and the arrays of their elements. Hosts are little-endian, like the protocol. */

/** Array type of each datatype. FP16 and BF16 use their bits: see float16.ts. BYTES has none. */
export interface Arrays {
  BOOL: Uint8Array
  UINT8: Uint8Array
  UINT16: Uint16Array
  UINT32: Uint32Array
  UINT64: BigUint64Array
  INT8: Int8Array
  INT16: Int16Array
  INT32: Int32Array
  INT64: BigInt64Array
  FP16: Uint16Array
  BF16: Uint16Array
  FP32: Float32Array
  FP64: Float64Array
  BYTES: Uint8Array[]
}

export type Datatype = keyof Arrays
export type TypedArray = Exclude<Arrays[Datatype], Uint8Array[]>

interface ArrayClass {
  readonly BYTES_PER_ELEMENT: number
  new (buffer: ArrayBuffer, offset: number, length: number): TypedArray
  new (length: number): TypedArray
}

/** In the order in which a datatype is derived from an array: `Uint8Array` is UINT8, `Uint16Array` is UINT16. */
const CLASSES: Readonly<Record<Exclude<Datatype, 'BYTES'>, ArrayClass>> = {
  FP32: Float32Array,
  FP64: Float64Array,
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  UINT64: BigUint64Array,
  BOOL: Uint8Array,
  FP16: Uint16Array,
  BF16: Uint16Array,
}

/** The class of arrays; null for BYTES. */
export function classOf(datatype: string): ArrayClass | null {
  return Object.hasOwn(CLASSES, datatype) ? CLASSES[datatype as keyof typeof CLASSES] : null
}

export const isDatatype = (name: string): name is Datatype => name === 'BYTES' || Object.hasOwn(CLASSES, name)

/** Bytes of an element; 0 for BYTES, whose elements vary. */
export const sizeOf = (datatype: string): number => classOf(datatype)?.BYTES_PER_ELEMENT ?? 0

/** Default datatype of an array; null for a `DataView` and other views without elements. */
export function datatypeOf(array: ArrayBufferView): Datatype | null {
  // Compared by name, because older platforms lack the class.
  if (array.constructor.name === 'Float16Array') return 'FP16'
  for (const name of Object.keys(CLASSES))
    if (array instanceof CLASSES[name as keyof typeof CLASSES]) return name as Datatype
  return null
}

/** An array over `raw`, which is copied only if its offset is not a multiple of the element's size. */
export function viewOf(datatype: string, raw: Uint8Array): TypedArray {
  const type = classOf(datatype) ?? Uint8Array
  const size = type.BYTES_PER_ELEMENT
  const aligned = raw.byteOffset % size === 0 ? raw : new Uint8Array(raw)
  return new type(aligned.buffer as ArrayBuffer, aligned.byteOffset, Math.floor(aligned.byteLength / size))
}

export const bytesOf = (view: ArrayBufferView): Uint8Array =>
  view instanceof Uint8Array ? view : new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength)

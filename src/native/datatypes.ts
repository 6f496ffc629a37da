/** The datatypes of the protocol, one row each. */

type ArrayType =
  | typeof Float32Array
  | typeof Float64Array
  | typeof Int8Array
  | typeof Int16Array
  | typeof Int32Array
  | typeof BigInt64Array
  | typeof Uint8Array
  | typeof Uint16Array
  | typeof Uint32Array
  | typeof BigUint64Array

export interface Datatype {
  /** Name in the protocol. */
  name: string
  /** Number in `inference.DataType` of configurations. */
  number: number
  /** Number in `onnx.TensorProto.DataType`. */
  onnx: number
  /** Name in messages of ONNX Runtime. */
  onnxName: string
  /** Type of the arrays that hold its elements; null for BYTES, whose elements differ in size. */
  array: ArrayType | null
}

/** An array type means the first datatype that has it. FP16 and BF16 are represented by their bits. */
const ROWS: readonly Datatype[] = [
  { name: 'FP32', number: 11, onnx: 1, onnxName: 'FLOAT', array: Float32Array },
  { name: 'FP64', number: 12, onnx: 11, onnxName: 'DOUBLE', array: Float64Array },
  { name: 'INT8', number: 6, onnx: 3, onnxName: 'INT8', array: Int8Array },
  { name: 'INT16', number: 7, onnx: 5, onnxName: 'INT16', array: Int16Array },
  { name: 'INT32', number: 8, onnx: 6, onnxName: 'INT32', array: Int32Array },
  { name: 'INT64', number: 9, onnx: 7, onnxName: 'INT64', array: BigInt64Array },
  { name: 'UINT8', number: 2, onnx: 2, onnxName: 'UINT8', array: Uint8Array },
  { name: 'UINT16', number: 3, onnx: 4, onnxName: 'UINT16', array: Uint16Array },
  { name: 'UINT32', number: 4, onnx: 12, onnxName: 'UINT32', array: Uint32Array },
  { name: 'UINT64', number: 5, onnx: 13, onnxName: 'UINT64', array: BigUint64Array },
  { name: 'BOOL', number: 1, onnx: 9, onnxName: 'BOOL', array: Uint8Array },
  { name: 'FP16', number: 10, onnx: 10, onnxName: 'FLOAT16', array: Uint16Array },
  { name: 'BF16', number: 14, onnx: 16, onnxName: 'BFLOAT16', array: Uint16Array },
  { name: 'BYTES', number: 13, onnx: 8, onnxName: 'STRING', array: null },
]

/** Datatypes by name. */
export const DATATYPES: ReadonlyMap<string, Datatype> = new Map(ROWS.map((row) => [row.name, row]))

export const datatypeNumbered = (number: number): Datatype | undefined => ROWS.find((row) => row.number === number)

export const datatypeOfOnnx = (onnx: number): Datatype | undefined => ROWS.find((row) => row.onnx === onnx)

/** The first byte of a BOOL tensor that is neither 0 nor 1, or -1. */
export function notBool(bytes: Uint8Array): number {
  for (let i = 0; i < bytes.length; i += 1) if ((bytes[i] as number) > 1) return i
  return -1
}

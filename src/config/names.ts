/** Names that more than one text needs: datatypes and shapes as messages print them. */
import { DataType, DataTypeSchema } from './generated/model_config_pb.js'

/** `TYPE_FP32`; what no client can have sent prints as `<invalid>`. */
export function typeName(type: number): string {
  return DataTypeSchema.values.find((v) => v.number === type)?.name ?? '<invalid>'
}

/** ONNX element types by datatype, as ONNX Runtime names them. */
const ONNX_NAMES: Partial<Record<DataType, string>> = {
  [DataType.TYPE_BOOL]: 'BOOL',
  [DataType.TYPE_UINT8]: 'UINT8',
  [DataType.TYPE_UINT16]: 'UINT16',
  [DataType.TYPE_UINT32]: 'UINT32',
  [DataType.TYPE_UINT64]: 'UINT64',
  [DataType.TYPE_INT8]: 'INT8',
  [DataType.TYPE_INT16]: 'INT16',
  [DataType.TYPE_INT32]: 'INT32',
  [DataType.TYPE_INT64]: 'INT64',
  [DataType.TYPE_FP16]: 'FLOAT16',
  [DataType.TYPE_FP32]: 'FLOAT',
  [DataType.TYPE_FP64]: 'DOUBLE',
  [DataType.TYPE_STRING]: 'STRING',
  [DataType.TYPE_BF16]: 'BFLOAT16',
}

/** The ONNX name of a datatype, or null for what ONNX does not have. */
export function onnxName(type: number): string | null {
  return ONNX_NAMES[type as DataType] ?? null
}

/** `[1,2,-1]`. */
export function shapeText(shape: readonly (number | bigint)[]): string {
  return `[${shape.join(',')}]`
}

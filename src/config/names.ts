/** Names that more than one text needs: datatypes and shapes as messages print them. */
import { datatypeNumbered } from '../native/datatypes.js'
import { DataTypeSchema } from './generated/model_config_pb.js'

/** `TYPE_FP32`; what no client can have sent prints as `<invalid>`. */
export function typeName(type: number): string {
  return DataTypeSchema.values.find((v) => v.number === type)?.name ?? '<invalid>'
}

/** The ONNX name of a datatype, or null for what ONNX does not have. */
export function onnxName(type: number): string | null {
  return datatypeNumbered(type)?.onnxName ?? null
}

/** `[1,2,-1]`. */
export function shapeText(shape: readonly (number | bigint)[]): string {
  return `[${shape.join(',')}]`
}

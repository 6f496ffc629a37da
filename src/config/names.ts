/** Datatypes and shapes as messages print them. */
import { datatypeNumbered } from '../native/datatypes.js'
import { DataTypeSchema } from './generated/model_config_pb.js'

/** Such as `TYPE_FP32`; `<invalid>` for a number that no client can send. */
export function typeName(type: number): string {
  return DataTypeSchema.values.find((v) => v.number === type)?.name ?? '<invalid>'
}

/** ONNX name of a datatype, or null if ONNX lacks it. */
export function onnxName(type: number): string | null {
  return datatypeNumbered(type)?.onnxName ?? null
}

/** Such as `[1,2,-1]`. */
export function shapeText(shape: readonly (number | bigint)[]): string {
  return `[${shape.join(',')}]`
}

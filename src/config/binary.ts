/** The protobuf form of a configuration: what crosses to the core and answers the gRPC ModelConfig call. */
import { clone, fromBinary as decode, toBinary as encode } from '@bufbuild/protobuf'
import { ModelConfigSchema, type ModelConfig } from './generated/model_config_pb.js'

export function toBinary(config: ModelConfig): Buffer {
  const bytes = encode(ModelConfigSchema, config)
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** The inverse of `toBinary`. Throws on bytes that are no `ModelConfig`: they come from ourselves. */
export function fromBinary(bytes: Uint8Array): ModelConfig {
  return decode(ModelConfigSchema, bytes)
}

/** A copy that may be changed. */
export function copy(config: ModelConfig): ModelConfig {
  return clone(ModelConfigSchema, config)
}

/** The protobuf form of a configuration, for the core and for the gRPC ModelConfig call. */
import { clone, equals, fromBinary as decode, toBinary as encode } from '@bufbuild/protobuf'
import { ModelConfigSchema, type ModelConfig } from './generated/model_config_pb.js'

export function toBinary(config: ModelConfig): Buffer {
  const bytes = encode(ModelConfigSchema, config)
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Inverse of `toBinary`. Throws on bytes that are no `ModelConfig`, which would be a bug of ours. */
export function fromBinary(bytes: Uint8Array): ModelConfig {
  return decode(ModelConfigSchema, bytes)
}

/** Compares all fields. */
export function isSame(a: ModelConfig, b: ModelConfig): boolean {
  return equals(ModelConfigSchema, a, b)
}

/** A mutable copy. */
export function copy(config: ModelConfig): ModelConfig {
  return clone(ModelConfigSchema, config)
}

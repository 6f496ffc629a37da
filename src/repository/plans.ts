/** Checks a TensorRT plan's configuration before opening it, with the rules of `backend_onnx::plan` (tested). */

import { backendRow, type ModelConfig } from '../config/index.js'
import { ModelInstanceGroup_Kind as Kind } from '../config/generated/model_config_pb.js'
import { ServerError } from '../native/index.js'

const OTHER_WAYS =
  'Other ways: serve the ONNX file that the plan was made from (backend "onnxruntime", with the accelerator ' +
  '"tensorrt" if it is wanted), or run the plan from a model.py with the package \'tensorrt\''

const isPlan = ({ backend }: ModelConfig): boolean => backend === 'tensorrt'

/** @throws {ServerError} `INVALID_ARG` if inputs or outputs are missing and cannot be read from the model's file */
export function requireTensors(config: ModelConfig): void {
  const opaque = backendRow(config.backend)?.opaque
  if (opaque !== undefined && (config.input.length === 0 || config.output.length === 0)) {
    const reason = `they are not read from ${opaque}`
    throw new ServerError('INVALID_ARG', `model '${config.name}' must specify its inputs and outputs: ${reason}`)
  }
}

/**
 * @param config with its instance groups filled in
 * @throws {ServerError} `UNAVAILABLE` when an instance is on the CPU
 */
export function requirePlanDevices(config: ModelConfig): void {
  if (isPlan(config) && config.instanceGroup.some(({ kind }) => kind === Kind.CPU)) {
    const text = 'a TensorRT plan runs on GPUs only, and an instance is on the CPU'
    throw new ServerError('UNAVAILABLE', `${text}. ${OTHER_WAYS}`)
  }
}

/**
 * Checks what a backend demands of a configuration, before the model is opened: inputs and outputs of opaque files, and
 * kinds of instance groups. The rules of plans are those of `backend_onnx::plan` (tested).
 */

import { backendRow, type ModelConfig } from '../config/index.js'
import { ModelInstanceGroup_Kind as Kind } from '../config/generated/model_config_pb.js'
import { ServerError } from '../native/index.js'

const OTHER_WAYS =
  'Other ways: serve the ONNX file that the plan was made from (backend "onnxruntime", with the accelerator ' +
  '"tensorrt" if it is wanted), or run the plan from a model.py with the package \'tensorrt\''

/** @throws {ServerError} `INVALID_ARG` if inputs or outputs are missing and cannot be read from the model's file */
export function requireTensors(config: ModelConfig): void {
  const opaque = backendRow(config.backend)?.opaque
  if (opaque !== undefined && (config.input.length === 0 || config.output.length === 0)) {
    const reason = `they are not read from ${opaque}`
    throw new ServerError('INVALID_ARG', `model '${config.name}' must specify its inputs and outputs: ${reason}`)
  }
}

/** @throws {ServerError} `INVALID_ARG` when the backend runs on the CPU only, and a group has another kind */
export function requireCpuKinds({ name, backend, instanceGroup }: ModelConfig): void {
  const row = backendRow(backend)
  if (row?.devices !== 'cpu' || !instanceGroup.some(({ kind }) => kind === Kind.GPU || kind === Kind.MODEL)) return
  const text = `unable to load model '${name}', Triton ${row.title ?? backend} backend supports only Kind CPU and AUTO`
  throw new ServerError('INVALID_ARG', text)
}

/**
 * @param config with its instance groups filled in
 * @throws {ServerError} `UNAVAILABLE` when an instance is on the CPU
 */
export function requirePlanDevices({ backend, instanceGroup }: ModelConfig): void {
  const { devices, opaque = backend } = backendRow(backend) ?? {}
  if (devices === 'only' && instanceGroup.some(({ kind }) => kind === Kind.CPU)) {
    const text = `${opaque} runs on GPUs only, and an instance is on the CPU`
    throw new ServerError('UNAVAILABLE', `${text}. ${OTHER_WAYS}`)
  }
}

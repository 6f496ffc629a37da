#!/usr/bin/env node
/**
 * `node test/gpu/models.mjs DIR`: writes the models of the rows. Graphs from code and weights from a seed, so that a
 * bundle carries neither and they are the same on every machine.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { addSub, identity } from '../../scripts/models/graphs.mjs'
import { TYPE } from '../../scripts/models/onnx.mjs'
import { chained, config, ensemble, writeModel } from '../../scripts/models/repository.mjs'
import { millisecond, resnet50 } from '../../bench/models/graphs.mjs'

const single = (type, dims) => [[['INPUT0', type, dims]], [['OUTPUT0', type, dims]]]
const pair = ['INPUT', 'OUTPUT'].map((way) => [0, 1].map((n) => [`${way}${n}`, 'TYPE_INT32', [16]]))
const on = (kind, count = 1) => `instance_group [ { count: ${count} kind: ${kind} } ]\n`

const simple = (more) => ({ config: config('onnxruntime', 8, ...pair, more), versions: { 1: addSub() } })
const same = (more) => ({
  config: config('onnxruntime', 0, ...single('TYPE_FP32', [-1]), more),
  versions: { 1: identity(TYPE.FP32, ['n']) },
})
/** One shape, which CUDA graphs and engines want. */
const fixed = (more) => ({
  config: config('onnxruntime', 0, ...single('TYPE_FP32', [32, 512]), on('KIND_GPU') + more),
  versions: { 1: millisecond() },
})
const accelerated = (name, more = '') =>
  `optimization { execution_accelerators { gpu_execution_accelerator [ { name: "${name}" ${more} } ] } }\n`

const MODELS = {
  simple_cpu: () => simple(on('KIND_CPU')),
  simple_gpu: () => simple(on('KIND_GPU')),
  simple_auto: () => simple(''),
  same_gpu: () => same(on('KIND_GPU')),
  same_four: () => same(on('KIND_GPU', 4)),
  same_three_times: () => ({
    config: ensemble(0, ...single('TYPE_FP32', [-1]), chained(['same_gpu', 'same_gpu', 'same_gpu'])),
  }),
  device_one: () => ({ config: config('device_identity', 0, ...single('TYPE_FP32', [-1]), on('KIND_GPU')) }),
  device_three_times: () => ({
    config: ensemble(0, ...single('TYPE_FP32', [-1]), chained(['device_one', 'device_one', 'device_one'])),
  }),
  fixed_cpu: () => ({
    config: config('onnxruntime', 0, ...single('TYPE_FP32', [32, 512]), on('KIND_CPU')),
    versions: { 1: millisecond() },
  }),
  fixed_gpu: () => fixed(''),
  fixed_graphs: () => fixed(accelerated('cuda', 'parameters { key: "enable_cuda_graph" value: "1" }')),
  fixed_tensorrt: () => fixed(accelerated('tensorrt')),
  resnet50_gpu: () => ({
    config: config(
      'onnxruntime',
      32,
      [['INPUT0', 'TYPE_FP32', [3, 224, 224]]],
      [['OUTPUT0', 'TYPE_FP32', [1000]]],
      on('KIND_GPU'),
    ),
    versions: { 1: resnet50() },
  }),
}

/** Big weights take seconds: only where they are asked for. */
const LARGE = new Set(['resnet50_gpu'])

const [directory, ...names] = process.argv.slice(2)
if (directory === undefined) throw new Error('node test/gpu/models.mjs DIR [NAME …]')
for (const [name, make] of Object.entries(MODELS)) {
  const isWanted = names.length === 0 ? !LARGE.has(name) : names.includes(name)
  if (isWanted && !existsSync(join(directory, name, 'config.pbtxt'))) writeModel(directory, name, make())
}

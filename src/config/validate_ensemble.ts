/**
 * Rules of an ensemble that do not need its composing models: every tensor has exactly one producer and at least one
 * consumer. The composing models are checked when they are loaded.
 */
import { invalid } from './error.js'
import type { ModelConfig, ModelEnsembling } from './generated/model_config_pb.js'

/** A tensor of the ensemble with the models' tensors mapped to it. */
interface Node {
  /** True for an input of the ensemble; a step may write it too. */
  isInput: boolean
  produced: boolean
  consumed: boolean
  isOutput: boolean
  /** Tensors that the producing step reads. */
  sources: string[]
}

export function validateEnsemble(ensemble: ModelEnsembling, config: ModelConfig): void {
  const name = config.name
  if (config.instanceGroup.length > 0) throw invalid(`instance group should not be specified for ensemble '${name}'`)
  if (config.optimization !== undefined) throw invalid(`optimization should not be specified for ensemble '${name}'`)
  if (config.modelWarmup.length > 0) throw invalid(`model_warmup can not be specified for ensemble '${name}'`)
  if (ensemble.step.length === 0) throw invalid(`must specify 'step' for ensemble '${name}'`)

  const nodes = buildGraph(ensemble, config)
  for (const { name: input } of config.input) {
    if (nodes.get(input)?.consumed !== true)
      throw invalid(`ensemble input '${input}' for ensemble ${name}' is not used`)
  }
  for (const { name: output } of config.output) {
    if (nodes.get(output)?.produced !== true && nodes.get(output)?.isInput !== true && !isConsumed(nodes, output))
      throw invalid(`ensemble output '${output}' for ensemble ${name}' is not used`)
  }
  const connected = connectedTensors(nodes)
  for (const { name: output } of config.output) {
    if (connected.has(output)) continue
    const missing = unconnectedSource(output, nodes, connected)
    throw invalid(
      `output '${output}' for ensemble '${name}' is not written` +
        (missing === undefined ? '' : `: at least one of its depending tensors, '${missing}', is not connected`),
    )
  }
  for (const [tensor, node] of nodes) {
    if (!connected.has(tensor) || !(node.consumed || node.isOutput))
      throw invalid(`ensemble tensor '${tensor}' is unused in ensemble '${name}'`)
  }
}

/** The tensor farthest back from `output` that is not connected; undefined if only the output itself is not. */
function unconnectedSource(output: string, nodes: Map<string, Node>, connected: Set<string>): string | undefined {
  const seen = new Set([output])
  let at = output
  for (;;) {
    const next = nodes.get(at)?.sources.find((source) => !connected.has(source) && !seen.has(source))
    if (next === undefined) return at === output ? undefined : at
    seen.add(next)
    at = next
  }
}

function isConsumed(nodes: Map<string, Node>, tensor: string): boolean {
  return nodes.get(tensor)?.consumed === true
}

function buildGraph(ensemble: ModelEnsembling, config: ModelConfig): Map<string, Node> {
  const nodes = new Map<string, Node>()
  const node = (tensor: string): Node => {
    const existing = nodes.get(tensor)
    if (existing !== undefined) return existing
    const fresh: Node = { isInput: false, produced: false, consumed: false, isOutput: false, sources: [] }
    nodes.set(tensor, fresh)
    return fresh
  }
  for (const { name } of config.input) node(name).isInput = true
  ensemble.step.forEach((step, index) => {
    const where = `in step ${index} of ensemble '${config.name}'`
    if (step.modelName === '') throw invalid(`must specify 'model_name' ${where}`)
    if (Object.keys(step.inputMap).length === 0) throw invalid(`must specify 'input_map' ${where}`)
    if (Object.keys(step.outputMap).length === 0) throw invalid(`must specify 'output_map' ${where}`)
    const sources = Object.values(step.inputMap)
    for (const tensor of sources) node(tensor).consumed = true
    for (const tensor of Object.values(step.outputMap)) {
      const target = node(tensor)
      if (target.produced) {
        throw invalid(
          `ensemble tensor '${tensor}' can appear in an output map only once for ensemble '${config.name}' ` +
            `step ${index}`,
        )
      }
      target.produced = true
      target.sources = sources
    }
  })
  for (const { name } of config.output) {
    const target = nodes.get(name)
    if (target !== undefined) target.isOutput = true
  }
  return nodes
}

/** Tensors that exist after every step ran whose inputs exist. A cycle feeds nothing. */
function connectedTensors(nodes: Map<string, Node>): Set<string> {
  const connected = new Set([...nodes].filter(([, node]) => node.isInput).map(([tensor]) => tensor))
  for (let grew = true; grew;) {
    grew = false
    for (const [tensor, node] of nodes) {
      if (connected.has(tensor) || !node.produced || !node.sources.every((s) => connected.has(s))) continue
      connected.add(tensor)
      grew = true
    }
  }
  return connected
}

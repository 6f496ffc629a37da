/** Completes a configuration by what a model declares. */

import { type Configuration, ModelConfig } from './config.js'
import type { InputDeclaration, OutputDeclaration } from './declarations.js'
import { checkDeclarations } from './declared.js'
import { RuleError } from './errors.js'
import type { AnyModel } from './model.js'

/** Adds the model's declarations to a configuration; false if it has none. */
export function applyDeclarations(model: AnyModel, isStream: boolean, config: ModelConfig): boolean {
  checkDeclarations(model as unknown as Record<string, unknown>, config.json.name ?? '')
  const { maxBatchSize, inputs, outputs } = model
  const decoupled = model.decoupled ?? (isStream ? true : undefined)
  if (maxBatchSize !== undefined) config.setMaxBatchSize(maxBatchSize)
  for (const [name, input] of entries(inputs)) config.addInput({ name, ...input })
  for (const [name, output] of entries(outputs)) config.addOutput({ name, ...output })
  if (decoupled !== undefined) config.setDecoupled(decoupled)
  return [maxBatchSize, inputs, outputs, decoupled].some((declared) => declared !== undefined)
}

const entries = (declared: Readonly<Record<string, InputDeclaration & OutputDeclaration>> | undefined) =>
  Object.entries(declared ?? {})

/** The configuration as the model completes it, as JSON text; null if it has nothing to say. */
export async function complete(model: AnyModel, isStream: boolean, name: string, text: string): Promise<string | null> {
  const config = new ModelConfig(JSON.parse(text) as Configuration, name)
  const isDeclared = applyDeclarations(model, isStream, config)
  if (model.autoCompleteConfig === undefined) return isDeclared ? JSON.stringify(config.json) : null
  const made = (await model.autoCompleteConfig(config)) ?? config
  if (!(made instanceof ModelConfig))
    throw new RuleError(`autoCompleteConfig of model '${name}' must return its config, or nothing`)
  return JSON.stringify(made.json)
}

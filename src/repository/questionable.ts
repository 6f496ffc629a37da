/** Warns of settings that a load accepts but that are surely mistakes. Only `nereid check` reports them. */

import { backendRow, misspeltParameters, type ModelConfig } from '../config/index.js'
import type { Report } from './named_files.js'

export function warnOfQuestionable(config: ModelConfig, report: Report): void {
  for (const { count } of config.instanceGroup) {
    if (count >= 0) continue
    const text = `instance group with count: ${count}: the default count is used`
    report(text, { field: 'count', value: String(count) })
  }
  warnOfTwice('instance group', config.instanceGroup, report)
  warnOfTwice('input', config.input, report)
  warnOfTwice('output', config.output, report)
  for (const [name, meant] of misspeltParameters(config)) {
    const text = `parameter '${name}' has no effect`
    report(text, { field: 'key', value: name }, meant === null ? undefined : `Did you mean '${meant}'?`)
  }
  const { schedulingChoice: choice, maxBatchSize } = config
  const isOrdered =
    choice.case === 'dynamicBatching' &&
    (choice.value.priorityLevels > 0n || choice.value.defaultQueuePolicy !== undefined || choice.value.preserveOrdering)
  // The texts of a text model run in batches, whatever the shape of its requests is.
  const isText = backendRow(config.backend)?.isText === true
  if (choice.case === 'dynamicBatching' && maxBatchSize === 0 && !isOrdered && !isText) {
    const advice = 'Set max_batch_size, with dims that leave the batch dimension out.'
    report('dynamic_batching forms no batches while max_batch_size is 0', { field: 'dynamic_batching' }, advice)
  }
}

function warnOfTwice(what: string, list: readonly { name: string }[], report: Report): void {
  const seen = new Map<string, number>()
  for (const { name } of list) {
    const nth = (seen.get(name) ?? 0) + 1
    seen.set(name, nth)
    if (nth === 2 && name !== '') report(`${what} '${name}' occurs twice`, { field: 'name', value: name, nth })
  }
}

/** What a load takes as it is, and what is surely not meant. Only `nereid check` says it. */

import type { ModelConfig } from '../config/index.js'
import type { Tell } from './named_files.js'

export function tellQuestionable(config: ModelConfig, tell: Tell): void {
  for (const { count } of config.instanceGroup) {
    if (count < 0) tell(`instance group with count: ${count}: it gets the default, as if count were left out`, { field: 'count', value: String(count) })
  }
  tellTwice('instance group', config.instanceGroup, tell)
  tellTwice('input', config.input, tell)
  tellTwice('output', config.output, tell)
  const { schedulingChoice: choice, maxBatchSize } = config
  const isOrdered = choice.case === 'dynamicBatching' && (choice.value.priorityLevels > 0n || choice.value.defaultQueuePolicy !== undefined || choice.value.preserveOrdering)
  if (choice.case === 'dynamicBatching' && maxBatchSize === 0 && !isOrdered) {
    tell('dynamic_batching forms no batches while max_batch_size is 0', { field: 'dynamic_batching' }, 'Set max_batch_size, with dims that leave the batch dimension out.')
  }
}

function tellTwice(what: string, list: readonly { name: string }[], tell: Tell): void {
  const seen = new Map<string, number>()
  for (const { name } of list) {
    const nth = (seen.get(name) ?? 0) + 1
    seen.set(name, nth)
    if (nth === 2 && name !== '') tell(`${what} '${name}' is there twice`, { field: 'name', value: name, nth })
  }
}

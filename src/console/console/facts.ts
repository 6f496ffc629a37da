/** The part of a model's configuration that decides how it runs, in words. Pure. */

import { counted, timeText } from '../format.js'

export interface ModelConfig {
  max_batch_size?: number
  instance_group?: readonly { count?: number; kind?: string; gpus?: readonly number[] }[]
  dynamic_batching?: {
    max_queue_delay_microseconds?: number | string
    default_queue_policy?: { max_queue_size?: number; default_timeout_microseconds?: number | string }
  }
  sequence_batching?: object
  ensemble_scheduling?: object
}

/** Instances, batching and queue. */
export function factsOf(config: ModelConfig): [name: string, text: string][] {
  const { max_batch_size: rows = 0, instance_group: groups = [], dynamic_batching: dynamic } = config
  const instances = groups.map(({ count = 1, kind = '', gpus = [] }) => {
    const place = gpus.length > 0 ? ` on each GPU of ${gpus.join(', ')}` : kind === 'KIND_CPU' ? ' on CPU' : ''
    return `${counted(count, 'instance')}${place}`
  })
  const delay = Number(dynamic?.max_queue_delay_microseconds ?? 0)
  const upTo = `batches of up to ${counted(rows, 'row')}`
  const batching =
    config.ensemble_scheduling !== undefined
      ? 'of the models that it is made of'
      : config.sequence_batching !== undefined
        ? `requests of a sequence in order${rows > 0 ? `, in ${upTo}` : ''}`
        : rows === 0
          ? 'none: requests run one by one'
          : dynamic === undefined
            ? `only rows of one request, in ${upTo}`
            : `${upTo}${delay > 0 ? `, for which a request waits at most ${timeText(delay)}` : ''}`
  const { max_queue_size: size = 0, default_timeout_microseconds: timeout = 0 } = dynamic?.default_queue_policy ?? {}
  const queue = [
    size > 0 ? `at most ${counted(size, 'request')}` : 'no limit of its own',
    ...(Number(timeout) > 0 ? [`each for at most ${timeText(Number(timeout))}`] : []),
  ]
  return [
    ...(instances.length > 0 ? [['Instances', instances.join(', ')] as [string, string]] : []),
    ['Batching', batching],
    ['Queue', queue.join(', ')],
  ]
}

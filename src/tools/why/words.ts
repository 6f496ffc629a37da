/** The words for phases and causes, for the command `why` and for the console, which runs in a browser. Pure. */

import { CAUSES } from './causes.js'

/** Phases of a request in the order of time, each with its meaning and with what makes it shorter. */
export const PHASES: Readonly<Record<string, readonly [meaning: string, change: string]>> = {
  read: ['reading the request', 'The client or the network sent the request slowly.'],
  parse: [
    'parsing and checking the request',
    'Binary data parses faster than JSON, and shared memory needs no copy (docs/shared-memory.md).',
  ],
  model: ['in the model (an ensemble, or the response cache)', 'See the models of the ensemble.'],
  queue: ['waiting in the queue', ''],
  input: ['gathering the inputs of the batch', 'Inputs in shared memory need no copy.'],
  infer: ['computing', 'The model itself takes the time: its threads, its batch, or other processes on its cores.'],
  output: ['distributing the outputs of the batch', 'Outputs in shared memory need no copy.'],
  responses: ['making further responses', 'The model itself takes the time between its responses.'],
  encode: ['encoding the response', 'Binary data encodes faster than JSON, and a request can list fewer outputs.'],
  write: ['sending the response', 'The client or the network read the response slowly.'],
}

/** Changes outside the configuration of the model, whose settings are sentences. */
const OUTSIDE: Readonly<Record<string, string>> = {
  hang: 'executions that hang',
  neighbour: 'other processes on the cores',
  'cpu quota': 'the CPU quota of the container',
}

export const isOutside = (change: string): boolean => change in OUTSIDE

/** `instances from 1 to 2`; many changes have no numbers. */
export function changeOf(change: string, from?: number | string | null, to?: number | string | null): string {
  const [before, after] = [from ?? '', to ?? '']
  return `${OUTSIDE[change] ?? change}${before === '' ? '' : ` from ${before}`}${after === '' ? '' : ` to ${after}`}`
}

/** Why a request waited behind the requests of a model. */
export const behindText = (name: string): string => `It waited because ${name} was using all instances when it came.`

/** Words for a cause; `no_batch` is that of requests that ran in no batch. */
export const causeOf = (cause: string): string =>
  CAUSES[cause] ?? (cause === 'no_batch' ? 'the response cache or an ensemble responded' : cause)

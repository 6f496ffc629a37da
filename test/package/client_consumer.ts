// Compiled against the installed package, with every check on its declarations.
import {
  ClientError,
  connect,
  float16,
  type Client,
  type ConnectOptions,
  type InferResult,
  type Inputs,
} from 'nereid-client'

export const options: ConnectOptions = { deadlineMs: 1000, retry: { attemptsMax: 2 } }

export async function ask(signal: AbortSignal): Promise<Int32Array> {
  const client: Client = connect('http://localhost:8000', options)
  const inputs: Inputs = {
    A: new Int32Array(16),
    B: { data: float16.encode([1]), shape: [1], datatype: 'FP16' },
    C: ['a'],
    D: [1n],
  }
  try {
    const result: InferResult = await client.infer('simple', inputs, {
      signal,
      outputs: ['X', { name: 'Y', classification: 3 }],
      parameters: { a: 1n },
    })
    for await (const answer of client.inferStream('repeat', inputs)) answer.output('OUT').as('BYTES')
    // @ts-expect-error a tensor of INT32 is no array of strings
    result.output('X').as('INT32') satisfies string[]
    return result.output('X').as('INT32')
  } catch (error) {
    if (error instanceof ClientError && error.code === 'NOT_FOUND') return new Int32Array(0)
    throw error
  }
}

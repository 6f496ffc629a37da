import { connect, type Tensor } from 'nereid/client'

/** Sends one row of numbers to the model `double` of a server. */
export async function double(url: string, row: readonly number[]): Promise<Tensor> {
  const client = connect(url)
  try {
    const result = await client.infer('double', { INPUT0: { data: Float32Array.from(row), shape: [1, row.length] } })
    return result.output('OUTPUT0')
  } finally {
    client.close()
  }
}

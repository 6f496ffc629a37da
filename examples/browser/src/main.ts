/** Sends the numbers of the form to the model `variable`, which adds each row, and shows the answer or the error. */
import { ClientError, connect } from 'nereid-client'

const client = connect((import.meta.env['VITE_SERVER'] as string | undefined) ?? 'http://localhost:8000')

async function sum(numbers: readonly number[]): Promise<string> {
  try {
    const result = await client.infer('variable', {
      X: { data: Float32Array.from(numbers), shape: [1, numbers.length] },
    })
    const { datatype, shape, data } = result.output('SUM')
    return `${datatype} [${shape.join(', ')}]: ${data.join(' ')}`
  } catch (error) {
    if (error instanceof ClientError) return `${error.code}: ${error.text}`
    throw error
  }
}

document.querySelector('form')?.addEventListener('submit', async (event) => {
  event.preventDefault()
  const form = event.currentTarget as HTMLFormElement
  const numbers = String(new FormData(form).get('numbers')).trim().split(/\s+/).map(Number)
  const answer = await sum(numbers)
  form.querySelector('output')?.replaceChildren(answer)
})

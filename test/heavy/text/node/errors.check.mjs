/** examples/client/errors.ts of openai-node: a request for an unknown model. */
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'

test('examples/client/errors.ts catches a NotFoundError with its text', async () => {
  const lines = []
  vi.spyOn(console, 'log').mockImplementation((...words) => lines.push(words))
  await import(join(process.env.NEREID_TEXT_NODE, 'examples/client/errors.ts'))
  await vi.waitFor(() => expect(lines.at(-1)?.[0]).toMatch(/^param:|^Raised/))
  const said = Object.fromEntries(lines.filter((words) => words.length === 2))
  expect(lines[0]).toEqual(['Caught NotFoundError!'])
  expect(said['type:']).toBe('invalid_request_error')
  expect(said['message:']).toMatch(/^404 \S/)
})

/** docs/typescript-reference.md is made from the package's declarations, without hand-written parts. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { reference } from '../../scripts/lib/reference.mjs'
import { ROOT } from './pages.js'

test('the TypeScript reference matches the declarations', async () => {
  const text = reference(join(ROOT, 'dist'))
  for (const name of ['Server', 'Model', 'Tensor', 'ServerError', 'Region', 'ServerOptions'])
    expect(text).toContain(`\n### ${name}\n`)
  expect(text).not.toContain('#private')
  await expect(text).toMatchFileSnapshot('../../docs/typescript-reference.md')
})

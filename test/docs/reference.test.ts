/** docs/typescript-reference.md is made from the declarations of the package: nothing in it is written by hand. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { reference } from '../../scripts/lib/reference.mjs'
import { ROOT } from './pages.js'

test('the reference of TypeScript is what the declarations say', async () => {
  const text = reference(join(ROOT, 'dist'))
  for (const name of ['Server', 'Model', 'Tensor', 'ServerError', 'Region', 'ServerOptions']) expect(text).toContain(`\n### ${name}\n`)
  expect(text).not.toContain('#private')
  await expect(text).toMatchFileSnapshot('../../docs/typescript-reference.md')
})

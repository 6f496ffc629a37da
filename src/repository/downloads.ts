/**
 * Repositories in clouds for the time of a check, downloaded into the cache that a server with the same flags uses. The
 * check reads local directories, and names URLs in their place.
 */

import { readdir } from 'node:fs/promises'
import { asServerError } from '../native/errors.js'
import { schemeOf } from '../stores/client.js'
import { Limit, eachOf } from '../stores/limit.js'
import type { RepositorySettings } from './settings.js'
import { Stores } from './stores.js'
import { versionsToLoad } from './versions.js'

export type Downloads = Awaited<ReturnType<typeof download>>

/**
 * Downloads the repositories among `paths` that are in clouds, each model with the versions that a load selects.
 *
 * @throws {ServerError} when one cannot be listed
 */
export async function download(paths: readonly string[], settings: RepositorySettings) {
  /** Warnings of a start, and errors of models that could not be downloaded. */
  const problems: { severity: 'error' | 'warning'; model: string | null; message: string }[] = []
  const urls = paths.filter((path) => schemeOf(path) !== null)
  const stores = new Stores({ ...settings, paths: urls }, (severity, message) => {
    if (severity === 'warning') problems.push({ severity, model: null, message })
  })
  const limit = new Limit(Math.max(1, settings.loadThreads))
  try {
    await stores.prepare()
    await stores.open()
    for (const store of stores.remote) {
      await eachOf(await readdir(store.directory), limit, new AbortController().signal, async (model) => {
        await store
          .materialise(model, (at) => versionsToLoad(at, settings, null))
          .catch((error: unknown) => {
            problems.push({ severity: 'error', model, message: asServerError(error).message })
          })
      })
    }
  } catch (error) {
    await stores.close()
    throw error
  }
  return {
    problems,
    /** The directory of a repository in a cloud; any other path as it is. */
    local: (path: string): string => stores.remote.find(({ name }) => name === path)?.directory ?? path,
    /** Replaces such directories in a text by their URLs. */
    named: (text: string): string =>
      stores.remote.reduce((all, { name, directory }) => all.replaceAll(directory, name.replace(/\/+$/, '')), text),
    close: () => stores.close(),
  }
}

/**
 * Pages for browsers at the HTTP port: `/`, `/docs` and `/console`, which are one program, and its files. Nothing is
 * loaded from other servers. Paths, access rights and header fields of pages are the core's business.
 */

import { ServerError, type Core } from '../../native/index.js'
import { ownVersion } from '../../native/locate.js'
import type { IndexRow } from '../../repository/index.js'
import { SHELL, appFile } from './app.js'

/** The contents of `/` as JSON. */
interface Home {
  name: string
  version: string
  /** The server that implements the API of `name` and `version`. */
  implementation: { name: string; version: string }
  ready: boolean
  models: IndexRow[]
  /** `metrics` is absent if the URL is unknown. */
  links: { docs: string; console: string; openapi: string; metrics?: string }
}

export interface PageContext {
  core: Pick<Core, 'serverMetadata' | 'isReady'>
  /** All rows of the repository index. @throws {ServerError} if the repository is unusable. */
  index: () => IndexRow[]
  /** 0 = no metrics. */
  metricsPort: number
}

/** The text of a page or of one of its files. `host` is the header of the request. */
export function page({ core, index, metricsPort }: PageContext, path: string, asHtml: boolean, host: string): string {
  if (path === '/app/console.js') return appFile('console.js')
  if (path === '/app/console.css') return appFile('console.css')
  if (path === '/docs' || path === '/console' || (path === '/' && asHtml)) return SHELL
  // As in KServe: each name once, regardless of state.
  if (path === '/v2/models') return JSON.stringify({ models: [...new Set(index().map(({ name }) => name))] })
  if (path !== '/') throw new ServerError('NOT_FOUND', 'Not Found')
  const { name, version } = JSON.parse(core.serverMetadata()) as { name: string; version: string }
  const metrics = metricsUrl(host, metricsPort)
  const links = {
    docs: '/docs',
    console: '/console',
    openapi: '/v2/openapi.json',
    ...(metrics === null ? {} : { metrics }),
  }
  const implementation = { name: 'Nereid', version: ownVersion() }
  const home: Home = { name, version, implementation, ready: core.isReady(), models: index(), links }
  return JSON.stringify(home)
}

/** URL of the metrics port on the host that the client used; null for a header that is not a plain host. */
function metricsUrl(host: string, port: number): string | null {
  const [, name] = /^([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/i.exec(host) ?? []
  return name === undefined || port === 0 ? null : `http://${name}:${port}/metrics`
}

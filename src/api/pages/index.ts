/**
 * Pages for browsers at the HTTP port: `/`, and `/docs`, which shows the API's description. Nothing is loaded from
 * other servers. Paths, access rights and header fields of pages are the core's business.
 */

import { ServerError, type Core } from '../../native/index.js'
import { ownVersion } from '../../native/locate.js'
import type { IndexRow } from '../../repository/index.js'
import { DOCS, SCRIPT, STYLE } from './docs.js'
import { homeHtml, type Home } from './html.js'

/** Static parts. */
const PARTS: Readonly<Record<string, string>> = { '/docs': DOCS, '/docs/page.js': SCRIPT, '/docs/page.css': STYLE }

export interface PageContext {
  core: Pick<Core, 'serverMetadata' | 'isReady'>
  /** All rows of the repository index. @throws {ServerError} if the repository is unusable. */
  index: () => IndexRow[]
  /** 0 = no metrics. */
  metricsPort: number
}

/** The text of a page or part. `host` is the header of the request. */
export function page({ core, index, metricsPort }: PageContext, path: string, asHtml: boolean, host: string): string {
  const part = PARTS[path]
  if (part !== undefined) return part
  // As in KServe: each name once, regardless of state.
  if (path === '/v2/models') return JSON.stringify({ models: [...new Set(index().map(({ name }) => name))] })
  if (path !== '/') throw new ServerError('NOT_FOUND', 'Not Found')
  const { name, version } = JSON.parse(core.serverMetadata()) as { name: string; version: string }
  const metrics = metricsUrl(host, metricsPort)
  const links = { docs: '/docs', openapi: '/v2/openapi.json', ...(metrics === null ? {} : { metrics }) }
  const implementation = { name: 'Nereid', version: ownVersion() }
  const home: Home = { name, version, implementation, ready: core.isReady(), models: index(), links }
  return asHtml ? homeHtml(home) : JSON.stringify(home)
}

/** URL of the metrics port on the host that the client used; null for a header that is not a plain host. */
function metricsUrl(host: string, port: number): string | null {
  const [, name] = /^([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/i.exec(host) ?? []
  return name === undefined || port === 0 ? null : `http://${name}:${port}/metrics`
}

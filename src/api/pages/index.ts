/**
 * What browsers show at the HTTP port: `/`, and `/docs`, which shows the description of the API. Everything is served by this server, and nothing is
 * loaded from elsewhere. Which page has which path, who may ask for it and its header fields are the core's.
 */

import { ServerError, type Core } from '../../native/index.js'
import type { IndexRow } from '../../repository/index.js'
import { DOCS, SCRIPT, STYLE } from './docs.js'
import { homeHtml, type Home } from './html.js'

/** Parts that are the same on every server. */
const PARTS: Readonly<Record<string, string>> = { '/docs': DOCS, '/docs/page.js': SCRIPT, '/docs/page.css': STYLE }

export interface PageContext {
  core: Pick<Core, 'serverMetadata' | 'isReady'>
  /** All rows of the repository index. @throws {ServerError} where there is no repository. */
  index: () => IndexRow[]
  /** 0 = there are no metrics. */
  metricsPort: number
}

/** The text of a page, or of a part of one. `host` is the header of the request. */
export function page({ core, index, metricsPort }: PageContext, path: string, asHtml: boolean, host: string): string {
  const part = PARTS[path]
  if (part !== undefined) return part
  // As KServe lists them: each name once, whatever its state.
  if (path === '/v2/models') return JSON.stringify({ models: [...new Set(index().map(({ name }) => name))] })
  if (path !== '/') throw new ServerError('NOT_FOUND', 'Not Found')
  const { name, version } = JSON.parse(core.serverMetadata()) as { name: string; version: string }
  const metrics = metricsUrl(host, metricsPort)
  const links = { docs: '/docs', openapi: '/v2/openapi.json', ...(metrics === null ? {} : { metrics }) }
  const home: Home = { name, version, ready: core.isReady(), models: index(), links }
  return asHtml ? homeHtml(home) : JSON.stringify(home)
}

/** Metrics have a port of their own, at the host by which the client came. A header that is no plain host is not repeated. */
function metricsUrl(host: string, port: number): string | null {
  const [, name] = /^([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/i.exec(host) ?? []
  return name === undefined || port === 0 ? null : `http://${name}:${port}/metrics`
}

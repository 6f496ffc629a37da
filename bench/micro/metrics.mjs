/** One scrape, with 1 and with 200 models: it runs on the JavaScript thread. */
import { Server } from '../../dist/index.js'
import { MANY, TWO } from '../models/generate.mjs'

export async function add(bench) {
  const two = await Server.start({ modelRepository: TWO, logInfo: false })
  const many = await Server.start({ modelRepository: MANY, logInfo: false })
  bench('metrics: render a scrape, 2 models', () => two.metricsText())
  bench('metrics: render a scrape, 200 models', () => many.metricsText())
  return () => Promise.all([two.stop(), many.stop()])
}

import { fileURLToPath } from 'node:url'
import { Server } from 'nereid'

/** Serves the models to this machine. Port 0 selects a free port: see `ports` of the result. */
export async function startServer(port: number): Promise<Server> {
  return await Server.start({
    // The same directory from src and from dist.
    modelRepository: fileURLToPath(new URL('../models', import.meta.url)),
    http: { address: '127.0.0.1', port },
  })
}

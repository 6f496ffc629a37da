/** `npm start`: serves until Ctrl-C. */
import { startServer } from './server.ts'

const server = await startServer(Number(process.env['PORT'] ?? 8000))
console.log(`http://127.0.0.1:${server.ports.http}`)
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => void server.stop())

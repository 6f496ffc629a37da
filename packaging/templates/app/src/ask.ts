/** `npm run ask -- 1 2 3`: asks the server of `npm start`. */
import { double } from './client.ts'

const { shape, datatype, data } = await double(
  `http://127.0.0.1:${process.env['PORT'] ?? 8000}`,
  process.argv.slice(2).map(Number),
)
console.log(datatype, shape, data)

import { StoreError, type OpenStore } from '../client.js'

export const open: OpenStore = async (url) => {
  throw new StoreError('invalid', `${url}: repositories in this storage are not read yet`)
}

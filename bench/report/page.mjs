export const page = () => ''

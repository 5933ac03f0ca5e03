export const run = async (_args: string[]): Promise<number> => 0;

/**
 * Arguments of Node for a program of the project: TypeScript needs a loader, which takes longer than most
 * programs. Tests name the file in plain JavaScript (test/support/plain.ts) instead.
 */
export const loaderFor = (file: string): string[] => (file.endsWith('.ts') ? ['--import', 'tsx'] : []);

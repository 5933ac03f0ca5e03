/** The helper of src/base for text of a peer, under the name that the tools use. */
export { printable, printableJson, printableLines, quoted } from '../../src/base/printable.ts';

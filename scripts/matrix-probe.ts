/** Prints as JSON the settings that this process's device works with. */
import { ourSettings } from '../conformance/siw/our-settings.ts';

process.stdout.write(`${JSON.stringify(await ourSettings())}\n`);

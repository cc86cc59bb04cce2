/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_umobject - the command: gets return what was put, and errors have a status and a message. */
#include "object.h"

/* The command runs in the folder of the test, beside the library that was built. */
__attribute__((format(printf, 4, 5)))
static void run(int line, int status, const char *words, const char *format, ...)
{
	char command[2560], out[8192];
	size_t len, got;
	va_list args;
	int ended;
	FILE *f;

	len = (size_t)snprintf(command, sizeof(command), "exec 2>&1; cd '%s'; PATH='%s/..':$PATH; "
			       "", temp_dir(), OBJECT_PLUGINS);
	va_start(args, format);
	vsnprintf(command + len, sizeof(command) - len, format, args);
	va_end(args);
	f = popen(command, "r");
	check(f);
	got = fread(out, 1, sizeof(out) - 1, f);
	out[got] = '\0';
	ended = pclose(f);
	check(WIFEXITED(ended) && WEXITSTATUS(ended) == status, "line %d: %s: status %#x: %s",
	      line, command + len, (unsigned)ended, out);
	check(strstr(out, words), "line %d: %s: nothing of \"%s\" in: %s", line, command + len,
	      words, out);
}

#define does(words, ...) run(__LINE__, 0, words, __VA_ARGS__)
#define refuses(words, ...) run(__LINE__, 2, words, __VA_ARGS__)

/* Attributes are exported to files of HDF5 and imported from them, also if other programs wrote
 * them. */
static void test_attributes_in_files(void)
{
	does("", "umobject create att; head -c 80 /dev/urandom > ten");
	does("a: version 1", "umobject put att a ten --type double --dims 10 --attribute unit=m/s "
	     "--attribute none= --attribute 'two words=x y'");
	does("", "umobject export att a out.h5");
	does("\"m/s\"", "h5dump -a /data/unit out.h5");
	does("\"x y\"", "h5dump -a '/data/two words' out.h5");
	does("b: version 1", "umobject put att b out.h5");
	does("attribute two words=x y\nattribute unit=m/s", "umobject stat att b");
	/* Empty values stay empty. */
	does("H5T_STRING", "umobject export att b again.h5; h5dump -a /data/none again.h5");
	does("", "/usr/bin/python3 -c \"import h5py, numpy; f = h5py.File('theirs.h5', 'w'); d = "
	     "f.create_dataset('data', data=numpy.arange(3)); d.attrs['text'] = 'long'; "
	     "d.attrs['fixed'] = numpy.bytes_('short'); d.attrs['pair'] = numpy.array([0x4142, "
	     "0x4344], 'int16'); d.attrs['zeros'] = numpy.array([1, 2], 'int16'); d.attrs['empty'] "
	     "= ''\"");
	does("c: version 1", "umobject put att c theirs.h5");
	does("attribute empty=\nattribute fixed=short\nattribute pair=BADC\nattribute "
	     "text=long\nattribute zeros=", "umobject stat att c");
	does("b'\\x01\\x00\\x02\\x00' b''", "umobject get att c ours.h5; /usr/bin/python3 -c "
	     "\"import h5py; a = h5py.File('ours.h5')['data'].attrs; print(a['zeros'].tobytes(), "
	     "a['empty'])\"");
	/* A zero within padded text belongs to the text. */
	does("", "/usr/bin/python3 -c \"import h5py, numpy; f = h5py.File('zero.h5', 'w'); d = "
	     "f.create_dataset('data', data=numpy.arange(3)); d.attrs['cut'] = "
	     "numpy.array(b'ab\\0cd', 'S8')\"");
	does("b'ab\\x00cd'", "umobject put att zero zero.h5; umobject get att zero zero2.h5; "
	     "/usr/bin/python3 -c \"import h5py; "
	     "print(h5py.File('zero2.h5')['data'].attrs['cut'].tobytes())\"");
	does("", "/usr/bin/python3 -c \"import h5py; f = h5py.File('theirs.h5', 'a'); "
	     "f['data'].attrs['where'] = f['data'].ref\"");
	/* Attributes that an object cannot have are left out. All others are stored. */
	does("left out the attribute 'where' of 'theirs.h5'", "umobject put att d theirs.h5");
	does("attribute text=long", "umobject stat att d");
	refuses("cannot put 'theirs.h5'", "umobject put att e theirs.h5 --strict");
	refuses("cannot find the object 'e'", "umobject stat att e");
	does("0 versions", "umobject gc att");
	does("", "/usr/bin/python3 -c \"import h5py, numpy; f = h5py.File('nc.h5', 'w'); d = "
	     "f.create_dataset('data', data=numpy.arange(3.)); s = f.create_dataset('x', "
	     "data=numpy.arange(3)); s.make_scale('x'); d.dims[0].attach_scale(s); "
	     "d.attrs['names'] = ['a', 'b']; d.attrs['units'] = 'K'; d.attrs['big'] = "
	     "numpy.zeros(8000); d.attrs['fixed'] = numpy.array([b'ab', b'cd']); "
	     "d.attrs.create('pair', numpy.array([('t', 1)], dtype=[('s', h5py.string_dtype()), "
	     "('n', 'i4')]))\"");
	does("left out the attribute 'DIMENSION_LIST'", "umobject put att nc nc.h5");
	does("left out the attribute 'names'", "umobject put att nc nc.h5");
	does("left out the attribute 'big'", "umobject put att nc nc.h5");
	does("left out the attribute 'pair'", "umobject put att nc nc.h5 --quiet");
	does("left out the attribute 'REFERENCE_LIST'", "umobject put att x nc.h5:/x");
	does("attribute fixed=abcd\nattribute units=K\n", "umobject stat att nc");
	does("[0. 1. 2.]", "umobject get att nc nc2.h5 && /usr/bin/python3 -c \"import h5py; "
	     "print(h5py.File('nc2.h5')['data'][:])\"");
	refuses("NAME=VALUE", "umobject put att d ten --attribute x");
	refuses("get takes no --strict", "umobject get att nc nc2.h5 --strict");
}

static void test_puts_and_gets(void)
{
	does("", "umobject create box --keep 3; head -c 8000 /dev/urandom > raw");
	does("raw: version 1", "umobject put box raw raw --type double --dims 10x100 --chunk 3x70 "
	     "--attribute a=1 --attribute none= --attribute 'long name=x y'");
	does("", "umobject get box raw back; cmp raw back");
	does("", "umobject get box raw - | cmp raw -");
	does("raw: version 2", "umobject put box raw - --dims 8000 < raw");
	does("8000\tuint8 8000", "umobject ls box");
	does("1\t8000\tdouble 10x100", "umobject ls box raw");
	does("attribute long name=x y", "umobject stat box raw --number 1");
	/* A copy has the attributes, too. */
	does("copy: version 1", "umobject create other; umobject cp box raw other copy --number 1 "
	     "--attribute b=2");
	does("attribute a=1\nattribute none=\nattribute long name=x y\nattribute b=2", "umobject "
	     "stat other copy");
	does("", "umobject get other copy back; cmp raw back; umobject get other copy a.npy; "
	     "umobject put box npy a.npy; umobject get box npy back; cmp raw back");
	does("", "umobject get box npy a.h5; umobject put box h5 a.h5; umobject get box h5 back; "
	     "cmp raw back");
	does("", "umobject get box npy b.hdf5:/group/set; umobject put box h5 b.hdf5:/group/set; "
	     "umobject get box h5 back; cmp raw back");
	/* A chunk that is larger than the array becomes the array. */
	does("", "umobject put box wide raw --type double --dims 1x1000 --chunk "
	     "2305843009213693952x1000; umobject get box wide back; cmp raw back");
	does("", "umobject put box wide raw --type double --dims 1000x1 --chunk "
	     "18446744073709551615x1; umobject get box wide back; cmp raw back");
	does("0 versions", "umobject gc box");
	does("", "umobject check box; umobject check box raw --number 1");
	does("2 versions, 2 chunks", "umobject rm box wide; ! umobject ls box | grep wide; "
	     "umobject gc box");
	does("a?b", "umobject put box \"$(printf 'a\\033b')\" raw; umobject ls box");
}

static void test_bad_arguments(void)
{
	refuses("usage", "umobject");
	refuses("there is no such action", "umobject frob box");
	refuses("too few or too many", "umobject put box a");
	refuses("no container", "umobject ls none");
	refuses("cannot list 'nobody'", "umobject ls box nobody");
	refuses("cannot find the object 'nobody'", "umobject stat box nobody");
	refuses("cannot find the object 'nobody'", "umobject check box nobody");
	refuses("cannot find the object 'nobody'", "umobject rm box nobody");
	refuses("cannot find version 9", "umobject get box raw back --number 9");
	refuses("--number with a name", "umobject check box --number 1");
	refuses("1 to 1000", "umobject create box2 --keep 4294967297");
	refuses("1 to 1000", "umobject create box2 --keep 0");
	/* The file would replace all of them. */
	refuses("rm takes no --number", "umobject rm box raw --number 1");
	does("double 10x100", "umobject ls box raw");
	refuses("get takes no --chunk", "umobject get box raw back --chunk 3");
	refuses("fewer bytes", "umobject put box a raw --dims 8001");
	refuses("more bytes", "umobject put box a raw --dims 7999");
	refuses("more bytes", "umobject put box a - --dims 7999 < raw");
	refuses("dims[1] = 0", "umobject put box a raw --dims 3x0");
	refuses("dims[0] = 0", "umobject put box a raw --dims 0x3");
	refuses("more bytes than a file", "umobject put box a raw --dims 18446744073709551615x3");
	refuses("as 1000x200", "umobject put box a raw --dims 3x");
	refuses("as 1000x200", "umobject put box a raw --dims 99999999999999999999");
	refuses("2 numbers", "umobject put box a raw --chunk 3x3");
	refuses("--type", "umobject put box a raw --type complex");
	refuses("NAME=VALUE", "umobject put box a raw --attribute a");
	refuses("No such file", "umobject put box a nothing");
	refuses("no HDF5 file", "cp raw raw.h5; umobject put box a raw.h5");
	refuses("no dataset", "umobject put box a a.h5:/none");
	refuses("no file of NumPy", "cp raw raw.npy; umobject put box a raw.npy");
	refuses("within its head", "head -c 20 a.npy > short.npy; umobject put box a short.npy");
	refuses("its head is damaged", "sed s/fortran_order/fortran_odder/ a.npy > order.npy; "
		"umobject put box a order.npy");
	refuses("is in Fortran's order", "sed 's/False,/True, /' a.npy > order.npy; umobject put "
		"box a order.npy");
	refuses("have: '<q8'\n", "sed \"s/'<..'/'<q8'/\" a.npy > type.npy; umobject put box a "
		"type.npy");
	refuses("fewer bytes", "head -c 5000 a.npy > short.npy; umobject put box a short.npy");
	refuses("more bytes", "cat a.npy raw > long.npy; umobject put box a long.npy");
	refuses("cannot write", "umobject get box raw - > /dev/full");
	refuses("cannot write", "umobject ls box > /dev/full");
	refuses("cannot write", "umobject get box raw /dev/full");
	refuses("cannot make", "umobject get box raw none/raw");
	/* The failed calls have left nothing in the container. */
	does("0 versions, 0 chunks", "umobject gc box");
}

/* Damages chunk 0 of the only object of a container. */
static void test_check(void)
{
	does("", "umobject create bad; umobject put bad x raw --chunk 1000; umobject check bad");
	does("", "printf x | dd of=\"$(ls bad/data/*.0.h5)\" bs=1 seek=3000 conv=notrunc 2> "
		 "/dev/null");
	run(__LINE__, 1, "chunk 0", "umobject check bad");
	does("", "rm bad/data/*.5.h5");
	run(__LINE__, 1, "chunk 5 is missing", "umobject check bad x");
	refuses("damaged", "umobject get bad x back");
	/* A damaged name hides no other name and no version, whatever the order of the list. */
	does("", "umobject put bad y raw; umobject put bad z raw; printf x | dd of=bad/names/y "
	     "bs=1 seek=9 conv=notrunc 2> /dev/null");
	refuses("cannot read 'y': its record is damaged", "umobject ls bad");
	refuses("\tx\n", "umobject ls bad");
	refuses("\tz\n", "umobject ls bad");
	refuses("cannot read 'y': its record is damaged", "umobject ls bad y");
	/* The record alone has the name, which is too long for a file. */
	does("", "umobject create long; for n in a b c; do umobject put long $n raw; umobject put "
	     "long $(printf '%%0400d' 0)$n raw; done");
	does("", "printf x | dd of=\"$(ls long/names/* | head -1)\" bs=1 seek=9 conv=notrunc 2> "
		 "/dev/null");
	refuses("damaged", "umobject ls long");
	does("5", "umobject ls long 2> /dev/null | wc -l");
	refuses("damaged", "umobject rm long a; umobject gc long");
}

/* A damaged copy of a container with two versions of x and one of y. */
static void damage(const char *how)
{
	does("", "rm -rf hurt; cp -a whole hurt; cd hurt; %s", how);
}

/* Checks and repairs all parts of a container. The collector removes nothing that a missing name
 * may refer to. */
static void test_lost_chunks(void)
{
	does("", "umobject create whole --keep 3; umobject put whole x raw --attribute a=b; head "
	     "-c 9000 /dev/urandom > raw2");
	does("", "umobject put whole x raw2; umobject put whole y raw; umobject check whole && "
	     "umobject check whole x");
	/* A chunk of an older version is damaged. */
	damage("printf zzz | dd of=data/$(umobject stat . x --number 1 | awk '/^id/{print "
	       "$2}').0.h5 bs=1 seek=5000 conv=notrunc 2> /dev/null");
	run(__LINE__, 1, "x version 1: chunk 0", "umobject check hurt");
	run(__LINE__, 1, "x version 1: chunk 0", "umobject check hurt x");
	run(__LINE__, 1, "x: chunk 0", "umobject check hurt x --number 1");
	does("", "umobject check hurt y && umobject check hurt x --number 2");
	/* A name is missing, and h5/ and versions/ refer to it. */
	damage("rm names/y");
	run(__LINE__, 1, "y: the name is missing, but version 1 exists\n", "umobject check hurt");
	run(__LINE__, 1, "y: the name is missing", "umobject check hurt y");
	refuses("cannot commit 'y'", "umobject put hurt y raw2");
	refuses("Nothing was removed", "umobject gc hurt");
	does("restored", "umobject check hurt --repair");
	does("0 versions", "umobject check hurt && umobject gc hurt; umobject get hurt y - | cmp "
	     "raw - && umobject gc hurt");
	damage("rm names/x h5/x.h5");
	refuses("Nothing was removed", "umobject gc hurt");
	does("version 2 exists: restored", "umobject check hurt x --repair");
	does("", "umobject check hurt && umobject get hurt x - | cmp raw2 - && umobject get hurt x "
	     "- --number 1 | cmp raw -");
	/* The newest version is damaged, too: an older one gets the name, and the damaged one is
	 * reported. */
	damage("printf zzz | dd of=data/$(umobject stat . x | awk '/^id/{print $2}').0.h5 bs=1 "
	       "seek=5000 conv=notrunc 2> /dev/null; rm names/x");
	run(__LINE__, 1, "x: version 2 has damaged chunks and is not restored", "umobject check "
	    "hurt --repair");
	does("", "umobject get hurt x - | cmp raw -");
	/* All names are missing. The versions that are found first have the last names. */
	damage("rm names/* versions/*");
	does("x: the record of version 1 is missing: restored", "umobject check hurt --repair");
	does("", "umobject check hurt && umobject get hurt x - | cmp raw2 - && umobject get hurt x "
	     "- --number 1 | cmp raw -");
	/* A record exists and is damaged. Its version is the same file, so an older one gets the
	 * name. */
	damage("truncate -s 40 names/x");
	run(__LINE__, 1, "x: the record of the name is damaged, but version 1 exists\n", "umobject "
	    "check hurt");
	refuses("Nothing was removed", "umobject gc hurt");
	does("", "test $(umobject check hurt x | wc -l) = 1 && test $(umobject check hurt | wc -l) "
	     "= 1");
	does("x: the record of the name is damaged, but version 1 exists: restored", "umobject "
	     "check hurt --repair");
	does("1 versions", "umobject check hurt && umobject get hurt x - | cmp raw - && umobject "
	     "gc hurt");
	does("x: version 2", "umobject put hurt x raw2; umobject check hurt && umobject get hurt x "
	     "- --number 1 | cmp raw -");
	/* In a copy without hard links, the newest version is whole. */
	damage("cp names/x x; mv x names/x; printf zzz | dd of=names/x bs=1 seek=9 conv=notrunc 2> "
	       "/dev/null");
	does("version 2 exists: restored", "umobject check hurt x --repair");
	does("0 versions", "umobject check hurt && umobject get hurt x - | cmp raw2 - && umobject "
	     "gc hurt");
	damage("cp names/x x; mv x names/x; : > names/x");
	does("version 2 exists: restored", "umobject check hurt --repair");
	/* The record is that of another name. */
	damage("cp names/y names/other; mv names/other names/x");
	refuses("Nothing was removed", "umobject gc hurt");
	does("version 2 exists: restored", "umobject check hurt --repair");
	does("0 versions", "umobject check hurt && umobject get hurt x - | cmp raw2 - && umobject "
	     "gc hurt");
	/* Versions of an object that was deleted have greater numbers, and do not get the name. */
	does("", "rm -rf hurt; umobject create hurt; for n in 1 2 3; do umobject put hurt x raw; "
	     "done; cp -a hurt/live old");
	does("", "umobject rm hurt x; umobject put hurt x raw2; cp -an old/* hurt/live/; cp "
		 "hurt/names/x x; mv x hurt/names/x; : > hurt/names/x");
	does("version 1 exists: restored", "umobject check hurt --repair");
	does("", "umobject get hurt x - | cmp raw2 -");
	/* No version can be read. */
	damage("truncate -s 40 names/y");
	run(__LINE__, 1, "y: cannot read 'y': its record is damaged", "umobject check hurt "
	    "--repair");
	/* A lost name is removed. */
	damage("rm names/x");
	does("2 versions, 2 chunks", "umobject rm hurt x; umobject gc hurt");
	does("", "umobject check hurt");
	refuses("cannot find the object 'x'", "umobject rm hurt x");
	/* A kept version is missing. */
	damage("rm versions/*");
	run(__LINE__, 1, "x: the record of version 1 is missing\n", "umobject check hurt");
	refuses("Nothing was removed", "umobject gc hurt");
	does("restored", "umobject check hurt --repair");
	does("0 versions", "umobject check hurt && umobject gc hurt");
	/* A version that cannot be found does not stop the collector. */
	damage("rm versions/* live/$(umobject stat . x --number 1 | awk '/^id/{print $2}')");
	run(__LINE__, 1, "and the version cannot be found", "umobject check hurt --repair");
	does("0 versions, 1 chunks", "umobject gc hurt");
	/* Views are damaged. */
	damage("for v in views/*; do printf z | dd of=$v bs=1 seek=900 conv=notrunc 2> /dev/null; "
	       "done");
	run(__LINE__, 1, "x version 1: the view", "umobject check hurt");
	does("", "umobject check hurt --repair && umobject check hurt && h5dump -a /data/a "
	     "hurt/views/$(umobject stat hurt x --number 1 | awk '/^id/{print $2}').h5");
	damage("rm views/*");
	run(__LINE__, 1, "cannot read", "umobject check hurt");
	does("", "umobject check hurt --repair && umobject check hurt");
	damage("a=$(ls views | head -1) b=$(ls views | tail -1); cp views/$a views/$b");
	run(__LINE__, 1, "the view of another version", "umobject check hurt");
	damage("rm h5/x.h5; ln -s ../views/none.h5 h5/x.h5; rm h5/y.h5; echo > h5/y.h5");
	run(__LINE__, 1, "x: the link in h5/ does not lead", "umobject check hurt");
	run(__LINE__, 1, "y: the link in h5/ does not lead", "umobject check hurt");
	does("restored", "umobject check hurt --repair");
	does("H5T_STD_U8LE", "umobject check hurt && h5dump -H hurt/h5/y.h5");
	/* A FIFO replaces a file: a read would wait. */
	damage("f=$(ls data/*.0.h5 | head -1); rm $f; mkfifo $f");
	run(__LINE__, 1, "cannot read a chunk", "timeout 60 umobject check hurt");
	damage("v=$(ls views/* | head -1); rm $v; mkfifo $v");
	run(__LINE__, 1, "view", "timeout 60 umobject check hurt");
	does("restored", "timeout 60 umobject check hurt --repair");
	damage("rm container; mkfifo container");
	refuses("container", "timeout 60 umobject ls hurt");
	/* A name is too long for a file. */
	does("", "rm -rf hurt; umobject create hurt --keep 2; umobject put hurt $(printf '%%0400d' "
		 "0) raw; umobject put hurt $(printf '%%0400d' 0) raw2; rm hurt/names/*");
	refuses("Nothing was removed", "umobject gc hurt");
	does("restored", "umobject check hurt --repair");
	does("", "umobject check hurt && umobject get hurt $(printf '%%0400d' 0) - | cmp raw2 -");
	refuses("not both", "umobject check hurt x --number 1 --repair");
	refuses("takes no --repair", "umobject gc hurt --repair");
}

/* The example leaves its last step, and the steps before it that are kept. */
static void test_simulation(void)
{
	does("step 40 is version 8", "'%s/../examples/object-simulation' sim 3 40", OBJECT_PLUGINS);
	does("8\t3145728\tdouble 768x512\tfield", "umobject check sim; umobject ls sim field");
	does("1\t3145728", "umobject ls sim field");
}

int main(void)
{
	test_puts_and_gets();
	test_attributes_in_files();
	test_bad_arguments();
	test_check();
	test_lost_chunks();
	test_simulation();
	return 0;
}

# 300 and more modules of python's own library, as a program without packages imports them
# for networking, data formats, processes, tests and tools; and a check of their number and of
# their place, which is the interpreter's.
import argparse, ast, asyncio, base64, bdb, bz2, calendar, cmd, code, codecs, colorsys, compileall
import concurrent.futures.process, concurrent.futures.thread, configparser, contextvars, copy, csv
import ctypes.util, dataclasses, datetime, dbm.dumb, decimal, difflib, dis, doctest
import email.mime.application, email.mime.audio, email.mime.image, email.mime.message
import email.mime.multipart, email.mime.text, email.policy, filecmp, fileinput, fractions, ftplib
import getopt, getpass, gettext, glob, graphlib, gzip, hashlib, hmac, html.entities, html.parser
import http.client, http.cookiejar, http.cookies, http.server, imaplib, importlib.metadata
import importlib.resources, inspect, ipaddress, json.tool, locale, logging.config, logging.handlers
import lzma, mailbox, mimetypes, modulefinder, multiprocessing.connection, multiprocessing.managers
import multiprocessing.pool, multiprocessing.shared_memory, multiprocessing.synchronize, netrc
import optparse, pathlib, pdb, pickle, pickletools, pkgutil, platform, plistlib, poplib, pprint
import profile, pstats, pty, py_compile, pyclbr, pydoc, queue, quopri, random, reprlib, rlcompleter
import runpy, sched, secrets, selectors, shelve, shlex, shutil, smtplib, socketserver, sqlite3, ssl
import stat, statistics, string, stringprep, subprocess, sysconfig, tabnanny, tarfile, tempfile
import textwrap, timeit, trace, tracemalloc, types, typing, unittest.mock, urllib.error
import urllib.request, urllib.robotparser, uuid, venv, wave, weakref, webbrowser
import wsgiref.simple_server, wsgiref.validate, xml.dom.minidom, xml.dom.pulldom
import xml.etree.ElementTree, xml.sax.saxutils, xmlrpc.client, xmlrpc.server, zipapp, zipfile
import zoneinfo, sys

files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
own = [file for file in files if file and file.startswith(sys.prefix + "/")]
print(len(own), "files of modules from the interpreter's own directory")
sys.exit(0 if len(own) >= 300 else 2)

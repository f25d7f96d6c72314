"""Audit: did any process deliver an effect before its cause?"""
